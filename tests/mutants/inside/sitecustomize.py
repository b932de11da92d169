"""Found by every Python of a mutant's Spark by its PYTHONPATH: the driver's mutant is the tasks' mutant, too."""

import os
import sys
from pathlib import Path

if os.environ.get("ATONCE_MUTANT"):
    sys.path.append(str(Path(__file__).resolve().parents[2]))
    from mutants.catalogue import load

    load()[os.environ["ATONCE_MUTANT"]].apply()
