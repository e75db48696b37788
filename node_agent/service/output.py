"""What the scheduler asks of a job's output on this node."""

from cosched.wire.messages import OutputChunk, ReadOutput
from node_agent.core.agent import AgentCore
from node_agent.core.attempt import STREAMS
from node_agent.policy.cases import first_true
from node_agent.service.spool import Spool


def output_chunk(core: AgentCore, spool: Spool, request: ReadOutput) -> OutputChunk:
    """A piece of a job's output, or why there is none."""
    attempt = core.get(request.job_id, request.attempt)
    final = attempt is None or attempt.ended is not None or attempt.forgotten
    elsewhere = None if attempt is None else attempt.elsewhere.get(request.stream)
    problems = [
        (f"no stream {request.stream!r}; there are {' and '.join(STREAMS)}", request.stream not in STREAMS),
        ("an offset or a size below 0", request.offset < 0 or request.max_bytes < 0),
        (f"{request.stream} was written to {elsewhere}", elsewhere is not None),
    ]
    problem = first_true(problems, "")
    data, size = b"", 0
    if not problem:
        try:
            data, size = spool.read(request.job_id, request.attempt, request.stream, request.offset, request.max_bytes)
        except FileNotFoundError:
            problem = "its output was discarded, or it has never run here" if attempt is None else ""
        except OSError as error:
            problem = f"cannot be read: {error.strerror}"
    return OutputChunk(request.request, data, size, final and max(0, request.offset) + len(data) >= size, problem)
