package captured_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/trimtab/trimtab/internal/topology/captured"
	"github.com/trimtab/trimtab/internal/topology/sysfs"
	"github.com/trimtab/trimtab/test/clock"
)

// TestRoundTrip packs trees of real machines and reads the same machines from the archives.
func TestRoundTrip(t *testing.T) {
	trees, err := filepath.Glob("../sysfs/testdata/*.txtar")
	if err != nil || len(trees) == 0 {
		t.Fatalf("%d trees, %v", len(trees), err)
	}
	for _, tree := range trees {
		t.Run(filepath.Base(tree), func(t *testing.T) {
			a, err := txtar.ParseFile(tree)
			if err != nil {
				t.Fatal(err)
			}
			sys, host := fstest.MapFS{}, fstest.MapFS{}
			for _, f := range a.Files {
				sys[f.Name], host["sys/"+f.Name] = &fstest.MapFile{Data: f.Data}, &fstest.MapFile{Data: f.Data}
			}
			host["sys/fs/cgroup/cgroup.controllers"] = &fstest.MapFile{Data: []byte("cpu memory\n")}
			host["sys/class/dmi/id/product_serial"] = &fstest.MapFile{Data: []byte("SECRET-1")}
			host["proc/sys/kernel/hostname"] = &fstest.MapFile{Data: []byte("SECRET-2")}
			host["proc/cmdline"] = &fstest.MapFile{Data: []byte("SECRET-3")}
			want, err := sysfs.Read(sys)
			if err != nil {
				t.Fatal(err)
			}
			var b bytes.Buffer
			if n, err := captured.Pack(&b, host); err != nil || n == 0 {
				t.Fatalf("%d files, %v", n, err)
			}
			if !captured.IsArchive(b.Bytes()) {
				t.Error("it does not look like an archive")
			}
			if text := unzip(t, b.Bytes()); strings.Contains(text, "SECRET") {
				t.Error("something of the host is in it")
			}
			got, err := captured.Open(&b)
			if err != nil {
				t.Fatal(err)
			}
			for i := range want.Devices { // numbers of device nodes are not captured
				want.Devices[i].Numbers = nil
			}
			if d := cmp.Diff(want.CPUs, got.Machine.CPUs) + cmp.Diff(want.Nodes, got.Machine.Nodes) + cmp.Diff(want.Devices, got.Machine.Devices); d != "" {
				t.Error(d)
			}
			if got.CgroupV1 {
				t.Error("it has cgroup v1")
			}
		})
	}
}

func unzip(t *testing.T, packed []byte) string {
	t.Helper()
	z, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if _, err := b.ReadFrom(z); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// archive packs the given entries unchanged.
func archive(t testing.TB, entries ...tar.Header) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	for _, h := range entries {
		text := []byte("0-3\n")
		if h.Typeflag == 0 {
			h.Typeflag = tar.TypeReg
		}
		if h.Typeflag != tar.TypeReg {
			text = nil
		}
		if h.Size > 0 {
			text = bytes.Repeat([]byte("0"), int(h.Size))
		}
		h.Size = int64(len(text))
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(text); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

const online = "trimtab-capture/sys/devices/system/cpu/online"

func TestHostile(t *testing.T) {
	good := archive(t, tar.Header{Name: online})
	if _, err := captured.Open(bytes.NewReader(good)); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		packed []byte
		want   string
	}{
		"no archive":      {[]byte("kind: Pod\n"), "not a compressed archive"},
		"cut off":         {good[:len(good)/2], "read the archive"},
		"empty":           {archive(t), "the archive is empty"},
		"above":           {archive(t, tar.Header{Name: "trimtab-capture/../etc/passwd"}), "not a file that trimtab capture packs"},
		"absolute":        {archive(t, tar.Header{Name: "/sys/devices/system/cpu/online"}), "not a file that trimtab capture packs"},
		"dots inside":     {archive(t, tar.Header{Name: "trimtab-capture/sys/devices/../devices/system/cpu/online"}), "not a file that trimtab capture packs"},
		"another file":    {archive(t, tar.Header{Name: "trimtab-capture/sys/kernel/notes"}), "not a file that trimtab capture packs"},
		"a link":          {archive(t, tar.Header{Name: online, Typeflag: tar.TypeSymlink, Linkname: "/etc/shadow"}), "not a regular file"},
		"a hard link":     {archive(t, tar.Header{Name: online, Typeflag: tar.TypeLink, Linkname: "/etc/shadow"}), "not a regular file"},
		"a device":        {archive(t, tar.Header{Name: online, Typeflag: tar.TypeChar}), "not a regular file"},
		"a directory":     {archive(t, tar.Header{Name: "trimtab-capture/sys", Typeflag: tar.TypeDir}), "not a regular file"},
		"twice":           {archive(t, tar.Header{Name: online}, tar.Header{Name: online}), " twice"},
		"large":           {archive(t, tar.Header{Name: online, Size: 1 << 20}), "at most 65536"},
		"no list of CPUs": {archive(t, tar.Header{Name: "trimtab-capture/sys/devices/system/node/online"}), "online CPUs"},
	} {
		if _, err := captured.Open(bytes.NewReader(c.packed)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

func FuzzOpen(f *testing.F) {
	f.Add(archive(f, tar.Header{Name: online}))
	f.Fuzz(func(t *testing.T, packed []byte) {
		defer clock.Watch(t, len(packed))()
		if n, err := captured.Open(bytes.NewReader(packed)); err == nil && len(n.Machine.CPUs) == 0 {
			t.Error("a machine without CPUs")
		}
	})
}
