package image_test

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"debug/buildinfo"
	"debug/elf"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	spdxjson "github.com/spdx/tools-golang/json"
	"github.com/spdx/tools-golang/spdx"
	"github.com/spdx/tools-golang/spdxlib"

	"github.com/trimtab/trimtab/deploy/pack/image"
	"github.com/trimtab/trimtab/deploy/pack/test/tree"
)

// TestImage makes the image twice, in two directories, like `make image`: the archives must have the same bytes. Then
// it reads one like any other program.
func TestImage(t *testing.T) {
	first, second := made(t), made(t)
	a, b := sum(t, first), sum(t, second)
	if a != b {
		t.Fatalf("two directories, two images: %s and %s", a, b)
	}
	index := opened(t, first)
	manifest, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	if v := manifest.Annotations["org.opencontainers.image.version"]; v != tree.Version {
		t.Errorf("the index says version %q, want %s", v, tree.Version)
	}
	var arches []string
	for _, m := range manifest.Manifests {
		arches = append(arches, m.Platform.OS+"/"+m.Platform.Architecture)
		one, err := index.Image(m.Digest)
		if err != nil {
			t.Fatal(err)
		}
		t.Run(m.Platform.Architecture, func(t *testing.T) { check(t, one, m.Platform.Architecture) })
	}
	if want := []string{"linux/amd64", "linux/arm64"}; !slices.Equal(arches, want) {
		t.Errorf("platforms %v, want %v", arches, want)
	}
}

func made(t *testing.T) string {
	t.Helper()
	dir := tree.Copy(t)
	t.Log(strings.TrimSpace(tree.Run(t, dir, "make", "image")))
	return filepath.Join(dir, "dist/trimtab-image.tar")
}

func sum(t *testing.T, file string) string {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	s := sha256.Sum256(data)
	return hex.EncodeToString(s[:])
}

// opened returns the image of an archive, which must have a name that containerd accepts.
func opened(t *testing.T, archive string) v1.ImageIndex {
	t.Helper()
	dir := t.TempDir()
	tree.Run(t, dir, "tar", "-xf", archive)
	all, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		t.Fatal(err)
	}
	top, err := all.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	if len(top.Manifests) != 1 {
		t.Fatalf("%d images in the archive", len(top.Manifests))
	}
	if name := top.Manifests[0].Annotations["io.containerd.image.name"]; name != "ghcr.io/trimtab/trimtab:"+tree.Version {
		t.Errorf("the image's name is %q", name)
	}
	index, err := all.ImageIndex(top.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	return index
}

func check(t *testing.T, one v1.Image, arch string) {
	t.Helper()
	config, err := one.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]string{"version": tree.Version, "created": tree.Time, "licenses": "Apache-2.0"} {
		if got := config.Config.Labels["org.opencontainers.image."+key]; got != want {
			t.Errorf("label %s is %q, want %q", key, got, want)
		}
	}
	if len(config.Config.Labels["org.opencontainers.image.revision"]) != 40 {
		t.Errorf("no commit in the labels: %v", config.Config.Labels)
	}
	if config.Architecture != arch || config.Created.Format("2006-01-02T15:04:05Z") != tree.Time {
		t.Errorf("configuration of %s, made at %v", config.Architecture, config.Created)
	}
	found := extracted(t, one)
	if want := []string{image.Program, image.Licence, image.SBOM}; !slices.Equal(found.names, want) {
		t.Fatalf("files %v, want %v", found.names, want)
	}
	checkProgram(t, found.data[image.Program], arch)
	checkParts(t, found.data[image.SBOM], found.data[image.Program])
}

type contents struct {
	names []string
	data  map[string][]byte
}

func extracted(t *testing.T, one v1.Image) contents {
	t.Helper()
	stream := mutate.Extract(one)
	defer stream.Close()
	c := contents{data: map[string][]byte{}}
	for r := tar.NewReader(stream); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return c
		}
		if err != nil {
			t.Fatal(err)
		}
		if h.Uid != 0 || h.Gid != 0 || h.Mode&0o022 != 0 {
			t.Errorf("%s belongs to %d:%d, mode %o", h.Name, h.Uid, h.Gid, h.Mode)
		}
		if h.Typeflag == tar.TypeReg {
			data, err := io.ReadAll(r)
			if err != nil {
				t.Fatal(err)
			}
			c.names = append(c.names, "/"+h.Name)
			c.data["/"+h.Name] = data
		}
	}
}

func checkProgram(t *testing.T, program []byte, arch string) {
	t.Helper()
	f, err := elf.NewFile(bytes.NewReader(program))
	if err != nil {
		t.Fatal(err)
	}
	if want := map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}[arch]; f.Machine != want {
		t.Errorf("a program for %v", f.Machine)
	}
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			t.Error("the program needs a loader, and the image has none")
		}
	}
	if arch != runtime.GOARCH {
		return
	}
	path := filepath.Join(t.TempDir(), "trimtab")
	if err := os.WriteFile(path, program, 0o755); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(path, "version").Output()
	if err != nil || !strings.HasPrefix(string(out), "trimtab "+tree.Version+" commit ") {
		t.Errorf("trimtab version: %q, %v", out, err)
	}
}

// checkParts compares the SBOM with the program, using another SPDX library.
func checkParts(t *testing.T, list, program []byte) {
	t.Helper()
	doc, err := spdxjson.Read(bytes.NewReader(list))
	if err != nil {
		t.Fatal(err)
	}
	if err := spdxlib.ValidateDocument(doc); err != nil {
		t.Error(err)
	}
	if doc.SPDXVersion != spdx.Version {
		t.Errorf("the list is %s", doc.SPDXVersion)
	}
	info, err := buildinfo.Read(bytes.NewReader(program))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{info.Main.Path + "@" + tree.Version, "stdlib@" + strings.TrimPrefix(info.GoVersion, "go")}
	for _, m := range info.Deps {
		want = append(want, m.Path+"@"+m.Version)
	}
	var got []string
	for _, p := range doc.Packages {
		got = append(got, p.PackageName+"@"+p.PackageVersion)
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("parts %v, want %v", got, want)
	}
	if len(doc.Relationships) != len(doc.Packages) {
		t.Errorf("%d relationships of %d packages", len(doc.Relationships), len(doc.Packages))
	}
}
