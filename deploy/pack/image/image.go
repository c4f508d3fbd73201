// Package image makes Trimtab's container image with the static program, its SBOM and its licence. The same programs
// give an image with the same digest: the only time in the image is that of the git commit, and the files have a fixed
// order.
package image

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/trimtab/trimtab/deploy/pack/files"
	"github.com/trimtab/trimtab/deploy/pack/program"
	"github.com/trimtab/trimtab/deploy/pack/sbom"
)

// Paths in the image.
const (
	Program = "/usr/local/bin/trimtab"
	Licence = "/usr/share/doc/trimtab/LICENSE"
	// SBOM is the path at which scanners look for an SBOM.
	SBOM = "/var/lib/db/sbom/trimtab.spdx.json"
)

// New makes an image index that has one image for each program. Each program is for another architecture.
func New(programs []program.Program, licence []byte) (v1.ImageIndex, error) {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, p := range programs {
		one, err := platformImage(p, licence)
		if err != nil {
			return nil, fmt.Errorf("image for %s: %w", p.Arch, err)
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add:        one,
			Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: p.Arch}},
		})
	}
	return annotate(index, programs[0])
}

// annotate returns the image index with annotations that are equal to the labels of p's image.
func annotate(index v1.ImageIndex, p program.Program) (v1.ImageIndex, error) {
	with, ok := mutate.Annotations(index, labels(p)).(v1.ImageIndex)
	if !ok {
		return nil, fmt.Errorf("add annotations to the image index: the result is not an index")
	}
	return with, nil
}

// platformImage makes the image for the architecture of one program.
func platformImage(p program.Program, licence []byte) (v1.Image, error) {
	data, err := os.ReadFile(p.Path)
	if err != nil {
		return nil, err
	}
	parts, err := sbom.ForProgram(p)
	if err != nil {
		return nil, err
	}
	content, err := files.Tar(p.Time, []files.File{
		{Path: Program[1:], Mode: 0o755, Data: data},
		{Path: Licence[1:], Mode: 0o644, Data: licence},
		{Path: SBOM[1:], Mode: 0o644, Data: parts},
	})
	if err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(
		func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content)), nil },
		tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, err
	}
	made := v1.Time{Time: p.Time}
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	if image, err = mutate.Append(image, mutate.Addendum{
		Layer: layer, History: v1.History{Created: made, CreatedBy: "trimtab-pack", Comment: "trimtab " + p.Version},
	}); err != nil {
		return nil, err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Created = "linux", p.Arch, made
	config.Config = v1.Config{
		User: "0:0", Entrypoint: []string{Program}, Cmd: []string{"agent"}, WorkingDir: "/",
		Env: []string{"PATH=" + path.Dir(Program)}, Labels: labels(p),
	}
	return mutate.ConfigFile(image, config)
}

// labels returns the labels of the image for program p. The OCI image specification defines their keys.
func labels(p program.Program) map[string]string {
	const home, prefix = "https://github.com/trimtab/trimtab", "org.opencontainers.image."
	of := map[string]string{
		prefix + "title":         "trimtab",
		prefix + "description":   "Node agent for Kubernetes: CPUs, memory nodes and quality of service of containers",
		prefix + "licenses":      "Apache-2.0",
		prefix + "vendor":        "The Trimtab authors",
		prefix + "url":           home,
		prefix + "source":        home,
		prefix + "documentation": home + "/blob/main/docs/install.md",
		prefix + "version":       p.Version,
		prefix + "created":       p.Time.Format(time.RFC3339),
	}
	if p.Revision != "" {
		of[prefix+"revision"] = p.Revision
	}
	return of
}
