"""A reason that rows of the geometry lens give and its findings count. Importing this costs nothing."""

AT_EDGE = "a smaller motion may lie beyond the edge of the grid"  # the reason of rows that have a motion
