"""The mathematics of image motions: groups, moved images, Jacobians and geodesic scores. All pure."""
