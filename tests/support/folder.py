"""Tests that have a folder of their own, which goes with them."""
import os
import secrets
import tempfile
import unittest


class FolderTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="ddl-test-")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def path(self, name):
        return os.path.join(self.folder, name)

    def secret_file(self, name, content=None, mode=0o600):
        """The path of a new file with this secret, or with a fresh one."""
        path = self.path(name)
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "w") as file:
            file.write(content if content is not None else secrets.token_hex(32) + "\n")
        os.chmod(path, mode)
        return path
