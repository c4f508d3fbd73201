// Package files makes reproducible tars: all files belong to user root, have the same modification time, and are in the
// given order.
package files

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"path"
	"time"
)

// File is a file in a tar. Path is relative to the root directory of the tar.
type File struct {
	Path string
	Mode int64
	Data []byte
}

// Tar returns a tar of the files, with the parent directories of each file before the file.
func Tar(modified time.Time, all []File) ([]byte, error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	made := map[string]bool{".": true}
	head := func(h tar.Header) error {
		h.ModTime, h.Format = modified, tar.FormatPAX
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

// writeParents writes the parent directories of name with writeHeader, the topmost first. It leaves out the directories
// in written, and adds the others to written.
func writeParents(name string, written map[string]bool, writeHeader func(tar.Header) error) error {
	dir := path.Dir(name)
	if written[dir] {
		return nil
	}
	if err := writeParents(dir, written, writeHeader); err != nil {
		return err
	}
	written[dir] = true
	return writeHeader(tar.Header{Typeflag: tar.TypeDir, Name: dir + "/", Mode: 0o755})
}

// TarGz returns a gzipped tar of the files.
func TarGz(modified time.Time, all []File) ([]byte, error) {
	data, err := Tar(modified, all)
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
