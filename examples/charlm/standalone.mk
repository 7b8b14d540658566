# SPDX-License-Identifier: Apache-2.0
# Builds charlm against an installed muster: make -f standalone.mk
CFLAGS ?= -O2 -g
MUSTER_CFLAGS := $(shell pkg-config --cflags muster)
MUSTER_LIBS := $(shell pkg-config --libs muster)

charlm: $(filter-out %_test.c,$(wildcard *.c)) config.h
	$(CC) -std=gnu11 -D_GNU_SOURCE -I. $(CFLAGS) -fopenmp-simd \
		-ffp-contract=off -fno-math-errno -fno-trapping-math \
		$(MUSTER_CFLAGS) -o $@ $(filter %.c,$^) $(MUSTER_LIBS) -lm

# The sources include what configure writes; here nothing of it is needed.
config.h:
	: >$@

clean:
	rm -f charlm config.h

.PHONY: clean
