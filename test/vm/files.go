package vm

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"io/fs"
)

// Files has the contents of regular files of a guest, by absolute path.
type Files map[string][]byte

// ReadFile returns the content of a file. If Files does not have the file, the error is fs.ErrNotExist. The method
// implements the interface effective.Files.
func (f Files) ReadFile(path string) ([]byte, error) {
	b, ok := f[path]
	if !ok {
		return nil, &fs.PathError{Op: "open", Path: path, Err: fs.ErrNotExist}
	}
	return b, nil
}

// Files reads all readable regular files below the paths with one request to the guest. It ignores missing paths.
func (m *Machine) Files(paths ...string) (Files, error) {
	ctx, cancel := callContext()
	defer cancel()
	b, err := m.client.tar(ctx, paths...)
	if err != nil {
		return nil, err
	}
	files := Files{}
	for t := tar.NewReader(bytes.NewReader(b)); ; {
		header, err := t.Next()
		if errors.Is(err, io.EOF) {
			return files, nil
		}
		if err != nil {
			return nil, err
		}
		if files["/"+header.Name], err = io.ReadAll(t); err != nil {
			return nil, err
		}
	}
}
