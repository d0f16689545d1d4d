"""The mathematics of image motions: groups, moved images, Jacobians, geodesic scores and fast marching. All pure."""
