-- scrub: the file without the pages that were given up. What they held is gone from it.
VACUUM
