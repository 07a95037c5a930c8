"""A provider for tests, benchmarks and demonstrations: it speaks OpenAI, and fails when told to."""

from proxy.simulator.answers import Answer, Framing
from proxy.simulator.config import SimulatorConfig
from proxy.simulator.faults import Fault
from proxy.simulator.recorder import ReceivedRequest
from proxy.simulator.server import Simulator
from proxy.simulator.wire import Ending, Pause

__all__ = [
    "Answer",
    "Ending",
    "Fault",
    "Framing",
    "Pause",
    "ReceivedRequest",
    "Simulator",
    "SimulatorConfig",
]
