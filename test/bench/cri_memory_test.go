package bench

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// BenchmarkCRIMemory measures the memory of the released program, between a caller and the backend in memory.
func BenchmarkCRIMemory(b *testing.B) {
	s := table.section("Memory of bin/trimtab as the CRI proxy, KiB", "containers", "when", "resident", "anonymous part", "file-backed", "peak")
	program := filepath.Join(b.TempDir(), "trimtab")
	build := exec.Command("go", "build", "-trimpath", "-tags", "nri_no_wasm,grpcnotrace", "-ldflags", "-s -w", "-o", program, "../../cmd/trimtab")
	if out, err := build.CombinedOutput(); err != nil {
		b.Fatalf("build: %v\n%s", err, out)
	}
	for _, n := range []int{0, 100, 500} {
		memoryAt(b, s, program, n)
	}
}

func memoryAt(b *testing.B, s *section, program string, n int) {
	b.Helper()
	t, made := newTree(b), newUnit(300_000, batch, 0)
	for _, u := range append(population(n), made) {
		if err := t.makePod(u); err != nil {
			b.Fatal(err)
		}
		if err := t.makeContainer(u); err != nil {
			b.Fatal(err)
		}
	}
	k, dir := openBackend(b, n, made), b.TempDir()
	socket, config := filepath.Join(dir, "s"), filepath.Join(dir, "config.yaml")
	text := fmt.Sprintf(`apiVersion: trimtab.io/v1alpha1
kind: Config
attach: cri
cri: {endpoint: "unix://%s", socket: %s}
cgroup: {root: %s, version: v2}
paths: {statusSocket: %s/t, state: %s/state, key: %s/key}
log: {level: error}
`, k.path, socket, t, dir, dir, dir)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		b.Fatal(err)
	}
	cmd := exec.Command(program, "agent", "--config", config)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	defer func() { _, _ = cmd.Process.Kill(), cmd.Wait() }()
	w := &way{name: proxied}
	for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		c, err := net.Dial("unix", socket)
		if err == nil {
			_ = c.Close()
			break
		}
		if time.Now().After(end) {
			b.Fatalf("the program does not serve: %v", err)
		}
	}
	var err error
	if w.conn, err = dialRaw(socket); err != nil {
		b.Fatal(err)
	}
	defer w.conn.Close()
	row := func(when string) {
		time.Sleep(6 * time.Second) // the process becomes idle, and returns unused memory every five seconds
		m := memoryOf(b, cmd.Process.Pid)
		s.row(n, when, m["VmRSS"], m["RssAnon"], m["RssFile"], m["VmHWM"])
	}
	row("after its start")
	for i := range 500 {
		w.call(b, criCall{method: "CreateContainer", messages: [][]byte{encode(creation(made))}}, i)
		w.call(b, criCall{method: "ListContainers", messages: [][]byte{{}}}, i)
	}
	row("after 500 creations, removals and lists")
}
