/* What PVM programs of a job have in common: its hosts, and a task for each of its tasks. */
#ifndef COSCHED_PVM_JOB_H
#define COSCHED_PVM_JOB_H

#include <pvm3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PVM_JOB_HOSTS 256

/* Of a call that has failed PVM itself says why on standard error; then there is no going on. */
static int pvm_checked(int result, const char *call) {
    if (result < 0) {
        fprintf(stderr, "%s: error %d\n", call, result);
        pvm_exit();
        exit(1);
    }
    return result;
}

/* The name of the host that a task is on. */
static const char *pvm_job_host(int tid) {
    struct pvmhostinfo *hosts;
    int count, format, daemon = pvm_tidtohost(tid);

    if (pvm_config(&count, &format, &hosts) >= 0)
        for (int i = 0; i < count; i++)
            if (hosts[i].hi_tid == daemon)
                return hosts[i].hi_name;
    return "?";
}

/* Spawn this program once for each of the job's tasks, on the node where the job has it; the caller is the first of
   them. Their ids in the order of the nodes, or NULL when not all could be started. */
static int *pvm_job_spawn(const char *program, int *ranks) {
    const char *nodes = getenv("COSCHED_NODES"), *tasks = getenv("COSCHED_TASKS_PER_NODE");
    struct pvmhostinfo *hosts;
    int count, format, *tids = malloc(PVM_JOB_HOSTS * sizeof *tids);
    char *name, *rest, *list, *here, path[4096];
    ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);

    *ranks = 0;
    if (!nodes || !tasks || !tids || pvm_config(&count, &format, &hosts) < 0)
        return NULL;
    if (length > 0)
        path[length] = '\0';
    else
        snprintf(path, sizeof path, "%s", program);
    here = strdup(pvm_job_host(pvm_mytid()));
    list = strdup(nodes);
    tids[(*ranks)++] = pvm_mytid();
    for (name = strtok_r(list, ",", &rest); name; name = strtok_r(NULL, ",", &rest)) {
        int wanted = atoi(tasks), started, first = *ranks == 1 && strcmp(name, here) == 0;

        if (strchr(tasks, ','))
            tasks = strchr(tasks, ',') + 1;
        wanted -= first;
        if (*ranks + wanted > PVM_JOB_HOSTS)
            return NULL;
        started = wanted > 0 ? pvm_spawn(path, NULL, PvmTaskHost, name, wanted, tids + *ranks) : 0;
        if (started < wanted) {
            fprintf(stderr, "%d of %d tasks could be started on %s\n", started < 0 ? 0 : started, wanted, name);
            return NULL;
        }
        *ranks += started;
    }
    return tids;
}

#endif
