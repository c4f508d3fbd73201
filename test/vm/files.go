package vm

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"io/fs"
)

// Files are regular files of a guest by their absolute path.
type Files map[string][]byte

// ReadFile implements effective.Files.
func (f Files) ReadFile(path string) ([]byte, error) {
	b, ok := f[path]
	if !ok {
		return nil, &fs.PathError{Op: "open", Path: path, Err: fs.ErrNotExist}
	}
	return b, nil
}

// Files reads all readable files below the paths in one call. It ignores missing paths.
func (m *Machine) Files(paths ...string) (Files, error) {
	ctx, cancel := callContext()
	defer cancel()
	b, err := m.channel.tar(ctx, paths...)
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
