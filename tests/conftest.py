"""What all tests share: the folder of the tests is importable (`import graphs`, `import models`)."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
