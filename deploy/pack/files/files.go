// Package files makes reproducible tars: the files belong to user root, have one time, and are in the given order.
package files

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"path"
	"time"
)

// File is a file in a tar. Path is relative to its root.
type File struct {
	Path string
	Mode int64
	Data []byte
}

// Tar returns a tar of the files, with missing parent directories before each file.
func Tar(at time.Time, all []File) ([]byte, error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	made := map[string]bool{".": true}
	head := func(h tar.Header) error {
		h.ModTime, h.Format = at, tar.FormatPAX
		return w.WriteHeader(&h)
	}
	for _, f := range all {
		if err := writeParents(f.Path, made, head); err != nil {
			return nil, err
		}
		err := head(tar.Header{Typeflag: tar.TypeReg, Name: f.Path, Mode: f.Mode, Size: int64(len(f.Data))})
		if err != nil {
			return nil, err
		}
		if _, err := w.Write(f.Data); err != nil {
			return nil, err
		}
	}
	err := w.Close()
	return b.Bytes(), err
}

// writeParents writes the missing parent directories of name, the topmost first.
func writeParents(name string, made map[string]bool, head func(tar.Header) error) error {
	dir := path.Dir(name)
	if made[dir] {
		return nil
	}
	if err := writeParents(dir, made, head); err != nil {
		return err
	}
	made[dir] = true
	return head(tar.Header{Typeflag: tar.TypeDir, Name: dir + "/", Mode: 0o755})
}

// TarGz returns a gzipped tar of the files.
func TarGz(at time.Time, all []File) ([]byte, error) {
	data, err := Tar(at, all)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write(data); err != nil {
		return nil, err
	}
	err = w.Close()
	return b.Bytes(), err
}
