/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Seeded faults of the protocol core, to show that the simulator can fail. In
 * what is installed MUTANT(n) is the constant false and leaves no trace; the
 * test program sim_mutants is built with MUTANT_BUILD and picks one by number.
 */
#ifndef MUSTER_RENDEZVOUS_MUTANT_H
#define MUSTER_RENDEZVOUS_MUTANT_H

#ifdef MUTANT_BUILD
extern int mutant_number;
#define MUTANT(n) (mutant_number == (n))
#else
#define MUTANT(n) 0
#endif

#endif
