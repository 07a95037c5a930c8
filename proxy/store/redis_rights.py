"""What a user of a shared server has to be allowed, in the words of its access lists."""

from __future__ import annotations

# For `tailfold serve`.
RIGHTS = (
    "~tailfold:1:* -@all +get +set +del +type +pttl +pexpire +persist +hget +hset +hdel +hmget +hrandfield "
    "+eval +evalsha +time +client|setname"
)
IN_A_CLUSTER = "+asking +cluster|slots +command"
# For commands that look at all that is kept, and for the doctor.
TO_LIST = "+scan +hgetall +hlen +unlink"
TO_EXAMINE = "+info +config|get"
TO_EXAMINE_A_CLUSTER = "+cluster|info"
