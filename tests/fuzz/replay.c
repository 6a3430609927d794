/* replay.c - runs a fuzz target over every file of a folder, where there is no fuzzer to do it. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void run_file(const char *path, size_t bytes)
{
    /* Of exactly this size, so that the sanitizer sees any read beyond it. */
    uint8_t *data = malloc(bytes > 0 ? bytes : 1);
    FILE *file = fopen(path, "rb");
    if (data == NULL || file == NULL || fread(data, 1, bytes, file) != bytes) {
        fprintf(stderr, "cannot read %s\n", path);
        exit(2);
    }
    fclose(file);
    LLVMFuzzerTestOneInput(data, bytes);
    free(data);
}

int main(int argc, char **argv)
{
    int count = 0;
    DIR *folder = argc == 2 ? opendir(argv[1]) : NULL;
    if (folder == NULL) {
        fprintf(stderr, "usage: %s CORPUS-FOLDER\n", argv[0]);
        return 2;
    }
    for (struct dirent *item; (item = readdir(folder)) != NULL;) {
        char path[4096];
        struct stat info;
        snprintf(path, sizeof path, "%s/%s", argv[1], item->d_name);
        if (stat(path, &info) != 0 || !S_ISREG(info.st_mode))
            continue;
        run_file(path, (size_t)info.st_size);
        count++;
    }
    closedir(folder);
    printf("%d inputs\n", count);
    return count > 0 ? 0 : 1; /* an empty corpus tests nothing */
}
