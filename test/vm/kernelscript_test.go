package vm_test

import (
	"bytes"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/trimtab/trimtab/test/kernel/script"
	"github.com/trimtab/trimtab/test/vm"
)

var update = flag.Bool("update", false, "write the recordings of kernels anew")

// scripted is the machine of the recordings: four CPUs on two nodes.
var scripted = vm.Topology{
	Name: "n2", Sockets: 2, Dies: 1, Cores: 2, Threads: 1, Nodes: []vm.Node{{CPUs: "0-1", MiB: 512}, {CPUs: "2-3", MiB: 512}},
}

// TestKernelScript runs the kernel script (suite K) on real kernels. It fails if their answers differ from
// the recordings or from the simulated kernel. A newer kernel of a series may have changed; -update then
// writes the recordings again, with which every make test compares the simulated kernel.
func TestKernelScript(t *testing.T) {
	t.Parallel()
	program := scriptProgram(t)
	for name, g := range map[string]vm.Guest{
		"6.1-v1": {Kernel: "6.1", CgroupV1: true}, "6.1-v2": {Kernel: "6.1"}, "6.12-v2": {Kernel: "6.12"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g.Topology = scripted
			got := record(t, vm.Start(t, g), program)
			file := filepath.Join("../kernel/script/testdata", name+".json")
			if *update {
				var b bytes.Buffer
				if err := got.Write(&b); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(file, b.Bytes(), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			want, err := script.ParseRecording(data)
			if err != nil {
				t.Fatal(err)
			}
			agree(t, want, got)
		})
	}
}

// agree compares a kernel with its recording, and with the simulated kernel.
func agree(t *testing.T, want, got script.Recording) {
	t.Helper()
	steps := 0
	for _, c := range got.Cases {
		steps += len(c.Steps)
	}
	t.Logf("kernel %s, cgroup %s: %d cases, %d steps", got.Kernel, got.Version, len(got.Cases), steps)
	if want.CPUs != got.CPUs || want.Mems != got.Mems || want.Modules != got.Modules || want.Version != got.Version {
		t.Fatalf("not the machine of the recording: %s %s %q %s, want %s %s %q %s",
			got.CPUs, got.Mems, got.Modules, got.Version, want.CPUs, want.Mems, want.Modules, want.Version)
	}
	if changed := script.Compare(want.Cases, got.Cases); len(changed) > 0 {
		t.Errorf("%d places where kernel %s is not the recorded %s; go test -run %s -update ./test/vm writes it anew:\n%s",
			len(changed), got.Kernel, want.Kernel, "TestKernelScript", script.Table("recorded", "now", changed))
	}
	fake, m, err := script.FakeOf(got)
	if err != nil {
		t.Fatal(err)
	}
	answers, err := script.Run(fake, m)
	if err != nil {
		t.Fatal(err)
	}
	all := script.Compare(got.Cases, answers)
	wrong, _ := script.Explain(got.Kernel, all)
	if len(wrong) > 0 {
		t.Errorf("%d places where the fake is not this kernel:\n%s", len(wrong), script.Table("kernel", "fake", wrong))
	}
	t.Logf("the fake differs in %d places, %d of them on purpose", len(all), len(all)-len(wrong))
}

// record runs the script in a guest.
func record(t *testing.T, m *vm.Machine, program []byte) script.Recording {
	t.Helper()
	m.Put("/tmp/script", 0o755, program)
	r, err := m.Do(t.Context(), vm.Command{Argv: []string{"/tmp/script", "-out", "/tmp/recording.json"}, Timeout: 5 * time.Minute})
	if err != nil || r.Code != 0 {
		t.Fatalf("the script ended with %d: %s%s%s, %v", r.Code, r.Stdout, r.Stderr, r.Err, err)
	}
	data, err := m.Get("/tmp/recording.json")
	if err != nil {
		t.Fatal(err)
	}
	got, err := script.ParseRecording(data)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// scriptProgram builds the script as a static program.
func scriptProgram(t *testing.T) []byte {
	t.Helper()
	out := filepath.Join(t.TempDir(), "guest")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-trimpath", "-ldflags=-s -w", "-o", out, "./test/kernel/guest")
	cmd.Dir = "../.."
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=")
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build the script: %v\n%s", err, text)
	}
	program, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	return program
}
