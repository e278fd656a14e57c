"""What the download starts."""

import sys

from hdpmf.private.page.app import main

sys.exit(main())
