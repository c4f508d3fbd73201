package image

import (
	"archive/tar"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
)

// The annotations with the image's name, for programs that import an OCI layout. They are in the layout's index.json
// and not in the image, so the image's digest does not depend on the name.
const (
	nameAnnotation = "io.containerd.image.name"
	refAnnotation  = "org.opencontainers.image.ref.name"
)

// Archive writes an image index as a tar of an OCI layout, for `ctr images import` and `skopeo copy oci-archive:`. In
// the layout, the image has the name repository:tag.
func Archive(out io.Writer, index v1.ImageIndex, repository, tag string) error {
	dir, err := os.MkdirTemp("", "trimtab-image")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	at, err := layout.Write(dir, empty.Index)
	if err != nil {
		return err
	}
	names := map[string]string{nameAnnotation: repository + ":" + tag, refAnnotation: tag}
	if err := at.AppendIndex(index, layout.WithAnnotations(names)); err != nil {
		return err
	}
	return writeTar(out, dir)
}

// writeTar writes a directory as a tar with sorted names. All modification times are 0 (1970), so that the same files
// give the same tar.
func writeTar(out io.Writer, dir string) error {
	w := tar.NewWriter(out)
	tree := os.DirFS(dir)
	err := fs.WalkDir(tree, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || name == "." {
			return err
		}
		h := tar.Header{Typeflag: tar.TypeDir, Name: name + "/", Mode: 0o755, ModTime: time.Unix(0, 0)}
		if d.IsDir() {
			return w.WriteHeader(&h)
		}
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return err
		}
		h.Typeflag, h.Name, h.Mode, h.Size = tar.TypeReg, name, 0o644, int64(len(data))
		if err := w.WriteHeader(&h); err != nil {
			return err
		}
		_, err = w.Write(data)
		return err
	})
	if err != nil {
		return err
	}
	return w.Close()
}
