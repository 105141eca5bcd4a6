"""The process that prepares a large file: `python -m dpadmm_mpi.data.preparing`, with a request on standard input."""

import json
import sys
from pathlib import Path

from dpadmm_mpi.config.extensions import Extension, load
from dpadmm_mpi.config.reading import read_section
from dpadmm_mpi.data import Data, StoredSource
from dpadmm_mpi.data.prepare import prepare
from dpadmm_mpi.errors import InputError, RunError, system_sentence


def main() -> None:
    request = json.loads(sys.stdin.read())
    try:
        load([Extension(path) for path in request["extensions"]])
        source = read_section(Data, "data", request["data"]).source
        assert isinstance(source, StoredSource)
        prepare(source, source.files(), Path(request["folder"]), request["group_column"])
    except (InputError, RunError) as error:
        print(error, file=sys.stderr)
        sys.exit(error.exit_code)
    except OSError as error:
        print(system_sentence(error), file=sys.stderr)
        sys.exit(RunError.exit_code)
    except MemoryError:
        print("out of memory while preparing the data", file=sys.stderr)
        sys.exit(RunError.exit_code)


if __name__ == "__main__":
    main()
