# SPDX-License-Identifier: Apache-2.0
#
# Jobs of a bed with Slurm, which $job and on() are of.

# [JOB]: it has ended, and so have its processes, or Slurm has forgotten it. A controller
# that does not answer in time has said nothing.
job_over() {
    local said
    said=$(on ctl squeue -h -j "${1:-$job}" -o %T -t pending,running,suspended,completing 2>&1)
    [ -z "$said" ] || [[ $said == *'Invalid job id'* ]]
}
