/* foreign_flags.c - what to write in place of other launchers' flags. */
#include "foreign_flags.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

static const struct {
    const char *names, *instead;
} theirs[] = {
    { " rdzv_endpoint ", "--master_addr HOST --master_port PORT" },
    { " rdzv_backend rdzv_conf ", "leave it out, as ranks meet at --master_addr, or where DDL_STORE says" },
    { " local_addr iface network_interface network_interfaces ",
      "DDL_IFACE or DDL_ADVERTISE, set before the program" },
    { " H host hosts f hostfile machinefile w nodelist ",
      "ddl-launch on each node, with --nnodes, --node_rank and --master_addr" },
    { " np n num_proc ", "-n N, or --nproc_per_node N, for the processes of this node" },
    { " N c ppn npernode pernode perhost ntasks_per_node ntasks nodes slots_per_host ",
      "--nproc_per_node N for the processes of this node, --nnodes N for the nodes" },
    { " min_np max_np ", "-n N alone, as the number of processes stays what it is" },
    { " m module ", "python3 -m MODULE as the program" },
    { " run_path ", "python3 FILE as the program" },
    { " multi_prog ", "sh -c 'case $RANK in 0) exec ONE;; *) exec OTHER;; esac' as the program" },
    { " G gpus gpus_per_node gpus_per_task ",
      "--nproc_per_node gpu, and --gpu_policy for which a process sees" },
    { " gpu_bind ", "--gpu_policy, for which GPUs a process sees" },
    { " x genv genvall genvlist env envall envlist export ",
      "env NAME=VALUE before the program; what is set is passed on" },
    { " wdir wd chdir D ", "cd DIR first; ranks start where ddl-launch does" },
    { " rank_by ", "leave it out, as ranks count on from node to node" },
    { " oversubscribe nooversubscribe use_hwthread_cpus bind_to map_by bind_to_core cpu_bind cpu_set "
      "numa_binding rankfile report_bindings cpus_per_task ",
      "leave it out, as there may be more ranks than CPUs, and ranks are bound as ddl-launch is" },
    { " allow_run_as_root ", "leave it out, as root may start a job" },
    { " tag_output l label prepend_rank ", "leave it out, as each line begins with its rank" },
    { " local_rank use_env virtual_local_rank ",
      "leave it out, as each process finds its own in LOCAL_RANK" },
    { " monitor_interval ", "leave it out, as the end of a process is seen at once" },
    { " start_method ", "leave it out, as each rank is a process of its own" },
    { " shutdown_timeout ", "--grace SECONDS" },
    { " event_log_handler ", "leave it out, as there are no events but failures, which are told" },
    { " timeline_filename timeline_mark_cycles ", "leave it out, as no timeline is written" },
    { " mca gmca mpi launcher rmk ", "leave it out, as there is no MPI below" },
    { " start_timeout gloo_timeout_seconds ", "DDL_START_TIMEOUT, set before the program" },
    { " v verbose log_level ", "DDL_LOG=debug, set before the program" },
    { " K kill_on_bad_exit W wait ", "leave it out, as the others end when one fails (--on_failure)" },
    { " time ", "--timeout SECONDS" },
    { " t ", "--log_dir DIR for torchrun's, --timeout SECONDS for srun's" },
    { " r tee redirects logs_specs output_filename outfile_pattern output o error e ", "--log_dir DIR" },
    { " merge_stderr_to_stdout ", "2>&1 behind the program" },
    { " u unbuffered ", "leave it out, as what ranks write is passed on at once" },
    { " stdin input i ", "leave it out, as rank 0 reads standard input, and no other" },
    { " q quiet ", "leave it out, as nothing is said while all goes well" },
    { " display_map ", "--dry_run, which shows each process" },
    { " signals_to_handle ", "leave it out, as signals are passed on" },
    { " prefix ", "PATH and LD_LIBRARY_PATH, set on each node" },
    { " ssh_port ", "leave it out, as ddl-launch is started on each node, and needs no ssh" },
    { " config_file ", "leave it out, as flags and variables say all" },
    { " p ", "leave it out: srun's is for salloc, horovodrun's for ssh, of which there is none" },
    { " partition account A qos mem mem_per_cpu mem_per_gpu exclusive J job_name ",
      "leave it out, or give it to salloc or sbatch" },
    { " overlap ", "leave it out, as no job step is made" },
    { " timestamp_output local_ranks_filter duplicate_stdout_filters duplicate_stderr_filters "
      "log_line_prefix_template ",
      "a filter behind it, such as grep '^.0.' or ts; each line begins with its rank" },
};

const char *launch_instead_of_foreign(const char *argument)
{
    char word[40];
    const char *name = argument + strspn(argument, "-");
    int bytes = snprintf(word, sizeof word, " %.*s ", (int)strcspn(name, "="), name);
    for (char *at = word; *at != '\0'; at++)
        if (*at == '-')
            *at = '_';
    for (size_t i = 0; bytes < (int)sizeof word && i < sizeof theirs / sizeof *theirs; i++)
        if (strstr(theirs[i].names, word) != NULL)
            return theirs[i].instead;
    return NULL;
}
