/*
 * foreign_flags.h - flags of other launchers, for who comes from them.
 */
#ifndef DDL_LAUNCH_FOREIGN_FLAGS_H
#define DDL_LAUNCH_FOREIGN_FLAGS_H

/* What to write here in place of a flag of torchrun, mpirun, mpiexec, srun or horovodrun; NULL: it is none of
 * theirs, or is none that has to be told of. */
const char *launch_instead_of_foreign(const char *argument);

#endif
