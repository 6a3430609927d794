/*
 * checkpoint.c - a file holds a head, parameters, velocities, and a checksum of all before it. In the
 * machine's byte order.
 */
#include "checkpoint.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct head {
    char magic[8];
    uint32_t version, units[LAYERS + 1];
    uint32_t reserved;
    int64_t epochs_done, batch, seed;
};
static const char magic[8] = "digits\r\n";
enum { CHECKPOINT_VERSION = 1, CHECKPOINT_FLOATS = 2 * PARAMETERS * sizeof(float) };
enum { CHECKPOINT_BYTES = sizeof(struct head) + CHECKPOINT_FLOATS + sizeof(uint64_t) };

/* FNV-1a */
static uint64_t checksum(const uint8_t *data, size_t bytes)
{
    uint64_t sum = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < bytes; i++)
        sum = (sum ^ data[i]) * UINT64_C(0x100000001b3);
    return sum;
}

static bool write_all(int fd, const uint8_t *data, size_t bytes)
{
    while (bytes > 0) {
        ssize_t written = write(fd, data, bytes);
        if (written < 0 && errno != EINTR)
            return false;
        if (written > 0) {
            data += written;
            bytes -= (size_t)written;
        }
    }
    return true;
}

/* Of the directory that the file is in; to be freed, NULL if out of memory. */
static char *name_directory(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash == NULL ? strdup(".") : strndup(path, slash == path ? 1 : (size_t)(slash - path));
}

bool checkpoint_can_save(const char *path)
{
    char *directory = name_directory(path);
    bool ok = directory != NULL && access(directory, W_OK | X_OK) == 0;
    if (!ok)
        fprintf(stderr, "train_digits: cannot write checkpoint %s: %s\n", path, strerror(errno));
    free(directory);
    return ok;
}

/* Make a rename in the file's directory last. */
static bool sync_directory(const char *path)
{
    char *directory = name_directory(path);
    int fd = directory != NULL ? open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    bool ok = fd >= 0 && fsync(fd) == 0;
    if (fd >= 0)
        close(fd);
    free(directory);
    return ok;
}

/* Write a new file beside the old one, and let it take its place when it is whole and on the disk. */
bool checkpoint_save(const char *path, const struct progress *progress, const struct network *network)
{
    bool ok = false;
    int fd = -1;
    size_t path_bytes = strlen(path) + sizeof ".new";
    char *temporary = malloc(path_bytes);
    uint8_t *data = calloc(1, CHECKPOINT_BYTES);
    if (temporary == NULL || data == NULL) {
        errno = ENOMEM;
        goto done;
    }
    struct head head = { .version = CHECKPOINT_VERSION,
                         .epochs_done = progress->epochs_done,
                         .batch = progress->batch,
                         .seed = progress->seed };
    memcpy(head.magic, magic, sizeof head.magic);
    for (int i = 0; i <= LAYERS; i++)
        head.units[i] = (uint32_t)units[i];
    memcpy(data, &head, sizeof head);
    memcpy(data + sizeof head, network->parameters, sizeof network->parameters);
    memcpy(data + sizeof head + sizeof network->parameters, network->velocities, sizeof network->velocities);
    uint64_t sum = checksum(data, CHECKPOINT_BYTES - sizeof sum);
    memcpy(data + CHECKPOINT_BYTES - sizeof sum, &sum, sizeof sum);

    snprintf(temporary, path_bytes, "%s.new", path);
    if ((fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666)) < 0)
        goto done;
    ok = write_all(fd, data, CHECKPOINT_BYTES) && fsync(fd) == 0;
    ok = close(fd) == 0 && ok;
    ok = ok && rename(temporary, path) == 0;
done:
    if (!ok) {
        fprintf(stderr, "train_digits: cannot write checkpoint %s: %s; what was there before still is\n",
                path, strerror(errno));
        if (fd >= 0)
            unlink(temporary);
    } else if (!sync_directory(path)) {
        fprintf(stderr, "train_digits: checkpoint %s is written, but may not outlast a power failure: %s\n",
                path, strerror(errno));
    }
    free(temporary);
    free(data);
    return ok;
}

/* Whether the bytes of a file are a checkpoint that this program can go on from; says why not. */
static bool check_checkpoint(const char *path, const uint8_t *data, size_t bytes)
{
    struct head head;
    uint64_t sum;
    if (bytes >= sizeof head.magic && memcmp(data, magic, sizeof head.magic) != 0) {
        fprintf(stderr, "train_digits: %s is no checkpoint of train_digits\n", path);
        return false;
    }
    if (bytes < sizeof head) {
        fprintf(stderr, "train_digits: checkpoint %s is cut short: %zu of %d bytes\n", path, bytes,
                CHECKPOINT_BYTES);
        return false;
    }
    memcpy(&head, data, sizeof head);
    if (head.version != CHECKPOINT_VERSION) {
        fprintf(stderr,
                "train_digits: checkpoint %s has version %" PRIu32 "; this program reads version %d\n", path,
                head.version, CHECKPOINT_VERSION);
        return false;
    }
    for (int i = 0; i <= LAYERS; i++)
        if (head.units[i] != (uint32_t)units[i]) {
            fprintf(stderr,
                    "train_digits: checkpoint %s is of another network: layer %d has %" PRIu32
                    " units, here it has %d\n",
                    path, i, head.units[i], units[i]);
            return false;
        }
    if (bytes != CHECKPOINT_BYTES) {
        fprintf(stderr, "train_digits: checkpoint %s is %s: %zu of %d bytes\n", path,
                bytes < CHECKPOINT_BYTES ? "cut short" : "too long", bytes, CHECKPOINT_BYTES);
        return false;
    }
    memcpy(&sum, data + CHECKPOINT_BYTES - sizeof sum, sizeof sum);
    if (sum != checksum(data, CHECKPOINT_BYTES - sizeof sum)) {
        fprintf(stderr, "train_digits: checkpoint %s is damaged: its checksum does not match\n", path);
        return false;
    }
    return true;
}

bool checkpoint_load(const char *path, const struct options *options, struct progress *progress,
                     struct network *network)
{
    bool ok = false;
    struct head head;
    uint8_t *data = malloc(CHECKPOINT_BYTES + 1); /* one more, to see a file that is too long */
    FILE *file = fopen(path, "rb");
    if (file == NULL || data == NULL) {
        fprintf(stderr, "train_digits: cannot read checkpoint %s: %s\n", path, strerror(errno));
        goto done;
    }
    size_t bytes = fread(data, 1, CHECKPOINT_BYTES + 1, file);
    if (ferror(file)) {
        fprintf(stderr, "train_digits: cannot read checkpoint %s: %s\n", path, strerror(errno));
        goto done;
    }
    if (!check_checkpoint(path, data, bytes))
        goto done;
    memcpy(&head, data, sizeof head);
    if ((options->batch_given && options->batch != head.batch) ||
        (options->seed_given && options->seed != head.seed)) {
        fprintf(stderr,
                "train_digits: checkpoint %s was made with --batch %" PRId64 " --seed %" PRId64
                "; leave these flags out to go on\n",
                path, head.batch, head.seed);
        goto done;
    }
    if (head.epochs_done < 0 || head.batch < 1 || head.seed < 0) {
        fprintf(stderr, "train_digits: checkpoint %s makes no sense: a batch of %" PRId64 "\n", path,
                head.batch);
        goto done;
    }
    progress->epochs_done = head.epochs_done;
    progress->batch = head.batch;
    progress->seed = head.seed;
    memcpy(network->parameters, data + sizeof head, sizeof network->parameters);
    memcpy(network->velocities, data + sizeof head + sizeof network->parameters, sizeof network->velocities);
    ok = true;
done:
    if (file != NULL)
        fclose(file);
    free(data);
    return ok;
}
