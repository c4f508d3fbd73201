package devices_test

import (
	"encoding/json"
	"flag"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/trimtab/trimtab/internal/report/devices"
	"github.com/trimtab/trimtab/test/clock"
)

var update = flag.Bool("update", false, "write the golden objects anew")

// node copies the tree of testdata to a directory of its own, with the links that the kernel makes.
func node(t testing.TB) (dir string, proc, sys fs.FS) {
	t.Helper()
	archive, err := txtar.ParseFile("testdata/node.txtar")
	if err != nil {
		t.Fatal(err)
	}
	dir = t.TempDir()
	for _, f := range archive.Files {
		file := filepath.Join(dir, f.Name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		target, link := strings.CutPrefix(string(f.Data), "-> ")
		if link {
			err = os.Symlink(strings.TrimSpace(target), file)
		} else {
			err = os.WriteFile(file, f.Data, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir, os.DirFS(filepath.Join(dir, "proc")), os.DirFS(filepath.Join(dir, "sys"))
}

// TestDevice: the object of a node, with and without the Node's label for the memory of GPUs.
func TestDevice(t *testing.T) {
	_, proc, sys := node(t)
	i, err := devices.Read(proc, sys)
	if err != nil {
		t.Fatal(err)
	}
	for name, labels := range map[string]map[string]string{
		"unknown-memory": {"kubernetes.io/hostname": "n1"},
		"labelled":       {"nvidia.com/gpu.memory": "40960", "nvidia.com/gpu.product": "NVIDIA-A100-SXM4-40GB"},
		"parts":          {"nvidia.com/gpu.memory": "4864", "nvidia.com/gpu.product": "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb"},
	} {
		annotations, fields := i.Device(labels)
		got, err := json.MarshalIndent(map[string]any{"annotations": annotations, "object": fields}, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		golden(t, name+".json", string(got)+"\n")
	}
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s, by -update:\n%s", file, diff)
	}
}

// TestMemory: a label without a size, and one for one of several models, is ignored.
func TestMemory(t *testing.T) {
	gpu := func(model string) devices.GPU { return devices.GPU{UUID: "GPU-1", Model: model} }
	for _, tc := range []struct {
		name, label string
		gpus        []devices.GPU
		want        string // a part of the text about omitted devices
	}{
		{"one", "81920", []devices.GPU{gpu("H100")}, ""},
		{"two of a model", "81920", []devices.GPU{gpu("H100"), gpu("H100")}, ""},
		{"two models", "81920", []devices.GPU{gpu("H100"), gpu("T4")}, "the node has several"},
		{"text", "40GB", []devices.GPU{gpu("T4")}, `is "40GB"`},
		{"negative", "-1", []devices.GPU{gpu("T4")}, "not a size"},
		{"zero", "0", []devices.GPU{gpu("T4")}, "not a size"},
		{"more than there is", "9223372036854775807", []devices.GPU{gpu("T4")}, "not a size"},
	} {
		i := devices.Inventory{GPUs: tc.gpus}
		labels := map[string]string{"nvidia.com/gpu.memory": tc.label}
		_, fields := i.Device(labels)
		for _, d := range fields["spec"].(map[string]any)["devices"].([]any) {
			d := d.(map[string]any)
			_, has := d["resources"].(map[string]any)["koordinator.sh/gpu-memory"]
			if healthy := tc.want == ""; d["health"] != healthy || has != healthy {
				t.Errorf("%s: %v", tc.name, d)
			}
		}
		if lacks := i.MissingText(labels); strings.Contains(lacks, "GPU memory") != (tc.want != "") || !strings.Contains(lacks, tc.want) {
			t.Errorf("%s: %q", tc.name, lacks)
		}
	}
}

// TestLeftOut: a device without the data that a scheduler needs is omitted, with the reason; the others are
// not.
func TestLeftOut(t *testing.T) {
	const gpu = "proc/driver/nvidia/gpus/0000:3b:00.0/information"
	for _, tc := range []struct {
		name, file, from, to string
		want                 string
		gpus, cards          int
	}{
		{name: "as it is", want: "GPU 0000:b2:00.0: no driver reports this GPU", gpus: 2, cards: 2},
		{"never used", gpu, "GPU-5b0e1f5e-7c53-44a2-9c11-0d1c3f4a7a01", "GPU-????????-????-????-????-????????????", "nvidia-persistenced", 1, 2},
		{"excluded", gpu, "Excluded:	 No", "Excluded:	 Yes", "excludes it", 1, 2},
		{"no minor", gpu, "Device Minor: 	 1", "Device Minor: 	 -", "no minor number", 1, 2},
		{"no node", "sys/devices/pci0000:3a/0000:3a:00.0/0000:3b:00.0/numa_node", "0", "", "no NUMA node", 1, 2},
		{"no node of a card", "sys/devices/pci0000:d7/0000:d7:00.0/0000:d8:00.0/numa_node", "-1", "x", "RDMA card 0000:d8:00.0", 2, 1},
	} {
		dir, proc, sys := node(t)
		if tc.file != "" {
			data, err := os.ReadFile(filepath.Join(dir, tc.file))
			if err != nil || !strings.Contains(string(data), tc.from) {
				t.Fatalf("%s: %q, %v", tc.name, data, err)
			}
			if err := os.WriteFile(filepath.Join(dir, tc.file), []byte(strings.Replace(string(data), tc.from, tc.to, 1)), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		i, err := devices.Read(proc, sys)
		if err != nil || len(i.GPUs) != tc.gpus || len(i.RDMA) != tc.cards || !strings.Contains(i.MissingText(nil), tc.want) {
			t.Errorf("%s: %+v, %v", tc.name, i, err)
		}
	}
}

// TestSameNumber: of two cards with the same number the first is kept, and the other is reported.
func TestSameNumber(t *testing.T) {
	dir, proc, sys := node(t)
	verbs := filepath.Join(dir, "sys/devices/pci0000:d7/0000:d7:00.0/0000:d8:00.0/infiniband_verbs")
	if err := os.Rename(filepath.Join(verbs, "uverbs1"), filepath.Join(verbs, "uverbs0")); err != nil {
		t.Fatal(err)
	}
	i, err := devices.Read(proc, sys)
	if err != nil || len(i.RDMA) != 1 || !strings.Contains(i.MissingText(nil), "has the same number 0") {
		t.Errorf("%+v, %v", i, err)
	}
}

// TestNone: a node without devices has an object without devices, and nothing is omitted. Reading this
// machine's devices is never an error.
func TestNone(t *testing.T) {
	i, err := devices.Read(fstest.MapFS{}, fstest.MapFS{})
	if err != nil {
		t.Fatal(err)
	}
	annotations, fields := i.Device(nil)
	if all := fields["spec"].(map[string]any)["devices"].([]any); len(all) > 0 || annotations[devices.LeftOutAnnotation] != "" {
		t.Errorf("%v %v", annotations, fields)
	}
	if _, err := devices.Read(os.DirFS("/proc"), os.DirFS("/sys")); err != nil {
		t.Error(err)
	}
}

// FuzzInformation: for any text of a driver, reading neither fails nor returns a GPU without the data that
// a scheduler needs.
func FuzzInformation(f *testing.F) {
	for _, seed := range []string{"", "Model: x\nGPU UUID: GPU-1\nDevice Minor: 0\n", "Device Minor: 99999999999999999999\n", ":\n::\n", "GPU UUID\n"} {
		f.Add(seed)
	}
	_, _, sys := node(f)
	f.Fuzz(func(t *testing.T, information string) {
		defer clock.Watch(t, len(information))()
		proc := fstest.MapFS{"driver/nvidia/gpus/0000:3b:00.0/information": {Data: []byte(information)}}
		i, err := devices.Read(proc, sys)
		if err != nil {
			t.Fatal(err)
		}
		for _, g := range i.GPUs {
			if g.UUID == "" || g.Minor < 0 || g.Root == "" {
				t.Errorf("%+v", g)
			}
		}
		_, fields := i.Device(map[string]string{"nvidia.com/gpu.memory": information, "nvidia.com/gpu.product": information})
		if _, err := json.Marshal(fields); err != nil {
			t.Error(err)
		}
	})
}
