"""What must happen in one step on the server. Each script touches one key, so that it runs in any cluster."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha1


@dataclass(frozen=True, slots=True)
class Script:
    text: str

    @property
    def name(self) -> str:
        """As the server calls it once it has seen it."""
        return sha1(self.text.encode(), usedforsecurity=False).hexdigest()


# A key of somebody else's in our place is in nobody's interest.
_OURS = """
local K = KEYS[1]
local function ours(kind)
  local is = redis.call('TYPE', K).ok
  if is ~= 'none' and is ~= kind then redis.call('DEL', K) end
end
"""
# As envelopes begin: until when one holds, and whether it is for good.
_ENVELOPES = """
local GOOD = '\\2\\0\\32\\0\\0\\0\\0\\0\\0'
local function for_good(value) return string.sub(value, 1, 9) == GOOD end
local function is_over(value, now)
  return #value >= 13 and string.byte(value, 1) == 1 and struct.unpack('>I8', value, 2) <= now
end
"""
_LASTING = """
local function last(ttl, left)
  if ttl < 0 then redis.call('PERSIST', K)
  elseif left == -2 or (left >= 0 and left < ttl) then redis.call('PEXPIRE', K, ttl) end
end
"""

# ttl, now, then field and value in turn. What is kept for good stays as it is.
#
# A hash that is always in use never expires as a whole, and not every server can let single fields expire. So
# with every put a few are looked at, and those that are over go.
PUT_FIELDS = Script(
    _OURS
    + _ENVELOPES
    + _LASTING
    + """
ours('hash')
local left, now = redis.call('PTTL', K), tonumber(ARGV[2])
for i = 3, #ARGV, 2 do
  local there = redis.call('HGET', K, ARGV[i])
  if not (there and for_good(there)) then redis.call('HSET', K, ARGV[i], ARGV[i + 1]) end
end
for _, field in ipairs(redis.call('HRANDFIELD', K, 4)) do
  if is_over(redis.call('HGET', K, field), now) then redis.call('HDEL', K, field) end
end
last(tonumber(ARGV[1]), left)
return 1
"""
)

PUT_VALUE = Script(
    _OURS
    + _ENVELOPES
    + """
ours('string')
local there = redis.call('GET', K)
if there and for_good(there) then return 0 end
local ttl = tonumber(ARGV[1])
if ttl < 0 then redis.call('SET', K, ARGV[2]) else redis.call('SET', K, ARGV[2], 'PX', ttl) end
return 1
"""
)

# Header, body, now, expires, ttl, and the field of a hash. Whatever is there and holds is the winner, with a
# later time where it is ours that lasts longer.
PUT_NEW = Script(
    _OURS
    + _LASTING
    + """
local header, body, now, expires, ttl, F = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]),
  tonumber(ARGV[5]), ARGV[6]
local function keep(value)
  if F then
    local left = redis.call('PTTL', K)
    redis.call('HSET', K, F, value)
    last(ttl, left)
  elseif ttl < 0 then redis.call('SET', K, value)
  else redis.call('SET', K, value, 'PX', ttl) end
  return value
end
ours(F and 'hash' or 'string')
local there
if F then there = redis.call('HGET', K, F) else there = redis.call('GET', K) end
if not there or #there < 13 then return keep(header .. body) end
local mark = string.byte(there, 1)
if mark == 2 then return there end
local holds = struct.unpack('>I8', there, 2)
if mark ~= 1 or holds <= now then return keep(header .. body) end
if string.byte(header, 1) == 2 or holds < expires then return keep(header .. string.sub(there, 10)) end
return there
"""
)

# What has been seen there, and the field of a hash: gone, if it is that still.
DROP = Script(
    _OURS
    + """
if ARGV[2] then
  if redis.call('HGET', K, ARGV[2]) == ARGV[1] then redis.call('HDEL', K, ARGV[2]) end
elseif redis.call('GET', K) == ARGV[1] then redis.call('DEL', K) end
return 1
"""
)

# Header, body, now, ttl, and the longest time that anybody may claim.
CLAIM = Script(
    _OURS
    + """
ours('string')
local there, now = redis.call('GET', K), tonumber(ARGV[3])
if there and #there >= 13 then
  local left = struct.unpack('>I8', there, 2) - now
  if left > 0 and left <= tonumber(ARGV[5]) and string.sub(there, 10) ~= ARGV[2] then return 0 end
end
redis.call('SET', K, ARGV[1] .. ARGV[2], 'PX', ARGV[4])
return 1
"""
)

RELEASE = Script(
    _OURS
    + """
ours('string')
local there = redis.call('GET', K)
if there and string.sub(there, 10) == ARGV[1] then redis.call('DEL', K) end
return 1
"""
)
