/* CG: conjugate gradients over any message-passing system, which gives the two exchanges below.

   The matrix is sparse, symmetric and diagonally dominant: row i has entries at i and at i ± DISTANCE (modulo the number
   of rows). Each step gathers a whole vector and has two global sums. Verified by the known solution: its right-hand side
   is computed from formulas, without the solver's product and without any exchange. */
#ifndef COSCHED_CG_H
#define COSCHED_CG_H

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CG_DISTANCES 3
#define CG_STEPS 25
#define CG_ALLOWED 1e-9

/* Everybody's part, one after the other in the order of ranks, into whole; begins has one entry more than ranks. */
static void cg_gather(const double *part, double *whole, const int *begins);
/* The sum over all ranks, added up in their order, the same on all of them. */
static double cg_sum(double value);

struct cg {
    int rows, rank, ranks, begin, end;
    int *begins;
    double *solution, *residual, *direction, *image, *whole;
};

static const int cg_distances[CG_DISTANCES] = {1, 37, 1009};

/* A number in [0, 1) that depends on index and salt alone: SplitMix64 (Steele, Lea, Flood 2014). */
static double cg_uniform(uint64_t index, uint64_t salt) {
    uint64_t z = index + salt * UINT64_C(0x9E3779B97F4A7C15) + UINT64_C(0x9E3779B97F4A7C15);

    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return (double)((z ^ (z >> 31)) >> 11) * 0x1p-53;
}

static double cg_wanted(int row, int problem) { return cg_uniform((uint64_t)row, 1000 + (uint64_t)problem); }

/* The entry between row and row + distance d. */
static double cg_weight(int row, int d) { return cg_uniform((uint64_t)row, (uint64_t)d + 1) - 0.5; }

static double cg_diagonal(void) { return 1.0 + CG_DISTANCES; }

static int cg_wrapped(const struct cg *cg, int row) { return (row % cg->rows + cg->rows) % cg->rows; }

static double *cg_vector(int length) {
    double *vector = calloc((size_t)length, sizeof *vector);

    if (!vector) {
        perror("cg");
        exit(1);
    }
    return vector;
}

static void cg_init(struct cg *cg, int rows, int rank, int ranks) {
    cg->rows = rows;
    cg->rank = rank;
    cg->ranks = ranks;
    cg->begins = malloc(((size_t)ranks + 1) * sizeof *cg->begins);
    if (!cg->begins)
        exit(1);
    for (int i = 0; i <= ranks; i++)
        cg->begins[i] = (int)((int64_t)rows * i / ranks);
    cg->begin = cg->begins[rank];
    cg->end = cg->begins[rank + 1];
    cg->solution = cg_vector(cg->end - cg->begin);
    cg->residual = cg_vector(cg->end - cg->begin);
    cg->direction = cg_vector(cg->end - cg->begin);
    cg->image = cg_vector(cg->end - cg->begin);
    cg->whole = cg_vector(rows);
}

static void cg_product(struct cg *cg) {
    cg_gather(cg->direction, cg->whole, cg->begins);
    for (int row = cg->begin; row < cg->end; row++) {
        double sum = cg_diagonal() * cg->whole[row];

        for (int d = 0; d < CG_DISTANCES; d++) {
            int before = cg_wrapped(cg, row - cg_distances[d]);

            sum += cg_weight(row, d) * cg->whole[cg_wrapped(cg, row + cg_distances[d])];
            sum += cg_weight(before, d) * cg->whole[before];
        }
        cg->image[row - cg->begin] = sum;
    }
}

static double cg_right_side(const struct cg *cg, int row, int problem) {
    double sum = cg_diagonal() * cg_wanted(row, problem);

    for (int d = 0; d < CG_DISTANCES; d++) {
        int after = cg_wrapped(cg, row + cg_distances[d]), before = cg_wrapped(cg, row - cg_distances[d]);

        sum += cg_weight(row, d) * cg_wanted(after, problem) + cg_weight(before, d) * cg_wanted(before, problem);
    }
    return sum;
}

static double cg_dot(const struct cg *cg, const double *a, const double *b) {
    double sum = 0;

    for (int i = 0; i < cg->end - cg->begin; i++)
        sum += a[i] * b[i];
    return cg_sum(sum);
}

static void cg_solve(struct cg *cg, int problem) {
    int mine = cg->end - cg->begin;
    double square;

    for (int i = 0; i < mine; i++) {
        cg->solution[i] = 0;
        cg->residual[i] = cg->direction[i] = cg_right_side(cg, cg->begin + i, problem);
    }
    square = cg_dot(cg, cg->residual, cg->residual);
    for (int step = 0; step < CG_STEPS; step++) {
        double length, before = square;

        cg_product(cg);
        length = square / cg_dot(cg, cg->direction, cg->image);
        for (int i = 0; i < mine; i++) {
            cg->solution[i] += length * cg->direction[i];
            cg->residual[i] -= length * cg->image[i];
        }
        square = cg_dot(cg, cg->residual, cg->residual);
        for (int i = 0; i < mine; i++)
            cg->direction[i] = cg->residual[i] + square / before * cg->direction[i];
    }
}

/* The largest difference to the known solution, whose numbers are in [0, 1), on this rank; infinite for no number. */
static double cg_error(const struct cg *cg, int problem) {
    double worst = 0;

    for (int i = 0; i < cg->end - cg->begin; i++) {
        double error = fabs(cg->solution[i] - cg_wanted(cg->begin + i, problem));

        if (!(error <= worst))
            worst = isnan(error) ? INFINITY : error;
    }
    return worst;
}

/* Solve so many problems; the sum of all ranks' worst errors. */
static double cg_run(struct cg *cg, int problems) {
    double worst = 0;

    for (int problem = 0; problem < problems; problem++) {
        cg_solve(cg, problem);
        worst += cg_sum(cg_error(cg, problem));
    }
    return worst;
}

/* A number from the command line, of so much and more. */
static int cg_number(const char *text, int least) {
    char *end;
    long number = strtol(text, &end, 10);

    if (*end || end == text || number < least || number > 100000000) {
        fprintf(stderr, "cg: '%s' is not a number from %d on; usage: cg [ROWS [PROBLEMS]]\n", text, least);
        exit(2);
    }
    return (int)number;
}

/* The result as one line of JSON; the exit status: 0 verified, 1 wrong. */
static int cg_tell(const char *program, const struct cg *cg, const char *hosts, int problems, double error) {
    int verified = error <= CG_ALLOWED;

    printf("{\"program\": \"%s\", \"ranks\": %d, \"hosts\": [%s], \"rows\": %d, \"problems\": %d, ", program, cg->ranks,
           hosts, cg->rows, problems);
    printf("\"verification\": %s%.3g%s, \"allowed\": %g, \"verified\": %s}\n", isfinite(error) ? "" : "\"", error,
           isfinite(error) ? "" : "\"", CG_ALLOWED, verified ? "true" : "false");
    fflush(stdout);
    return !verified;
}

/* Whether the world is as large as the job, where there is one; another size is several worlds, or a wrong launcher. */
static int cg_expected(int ranks) {
    const char *tasks = getenv("COSCHED_TASKS");

    if (!tasks || atoi(tasks) == ranks)
        return 1;
    fprintf(stderr, "cg: a world of %d ranks in a job of %s tasks\n", ranks, tasks);
    return 0;
}

#endif
