// Package hooksd reads directories of OCI hooks, such as /etc/containers/oci/hooks.d. It refuses files that
// users other than root and the caller can write. Package hook parses the files. This package writes no files.
package hooksd

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/trust"
)

// Limits for the files of OCI hooks: the number of files in a directory, and the size of a file.
const (
	maxFiles    = 256
	maxFileSize = 64 << 10 // in bytes
)

// Read returns the files of hooks in directories, sorted by name. A file replaces a file with the same name in an
// earlier directory, even if the file in the later directory cannot be read. A missing directory counts as an empty
// directory. podman and CRI-O follow the same rules (oci-hooks(5)).
func Read(directories []string) []lifecycle.HookFile {
	found := map[string]lifecycle.HookFile{}
	for _, dir := range directories {
		names, err := jsonFiles(dir)
		if err != nil {
			found[dir] = lifecycle.HookFile{Path: dir, ReadError: err.Error()}
		}
		for _, name := range names {
			found[name] = readFile(dir, name)
		}
	}
	var all []lifecycle.HookFile
	for _, name := range slices.Sorted(maps.Keys(found)) {
		all = append(all, found[name])
	}
	return all
}

// jsonFiles returns the names of the JSON files in a directory. If there are more than maxFiles, it returns an error.
func jsonFiles(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list the files of OCI hooks: %w", err)
	}
	var names []string
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), ".json") {
			names = append(names, e.Name())
		}
	}
	if len(names) > maxFiles {
		return nil, fmt.Errorf("the directory has more than %d files of OCI hooks", maxFiles)
	}
	return names, nil
}

// readFile returns the file of a hook with its text, or with the reason why it cannot be read.
func readFile(dir, name string) lifecycle.HookFile {
	f := lifecycle.HookFile{Path: filepath.Join(dir, name)}
	text, err := readTrusted(dir, name)
	if err != nil {
		f.ReadError = err.Error()
	}
	f.Text = text
	return f
}

// readTrusted reads a regular file of a directory. It follows only links that stay inside the directory. It refuses a
// file that users other than root and the caller can write, because a hook runs as root.
func readTrusted(dir, name string) (string, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return "", err
	}
	defer root.Close()
	if info, err := root.Stat("."); err != nil {
		return "", err
	} else if err := trust.CheckWriters(info); err != nil {
		return "", fmt.Errorf("check the directory of the file: %w", err)
	}
	f, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return "", err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return "", err
	}
	if !info.Mode().IsRegular() {
		return "", errors.New("the file is not a regular file")
	}
	if err := trust.CheckWriters(info); err != nil {
		return "", err
	}
	text, err := io.ReadAll(io.LimitReader(f, maxFileSize+1))
	if err == nil && len(text) > maxFileSize {
		err = fmt.Errorf("the file has more than %d bytes", maxFileSize)
	}
	if err != nil {
		return "", err
	}
	return string(text), nil
}
