package vm

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/trimtab/trimtab/test/vm/wire"
)

// The timeouts are about four times what a quiet machine of two cores takes.
const (
	bootTimeout    = 10 * time.Minute
	restoreTimeout = 3 * time.Minute
	callTimeout    = 2 * time.Minute
)

// Guest describes the machine that a test needs.
type Guest struct {
	Topology Topology // the default is Flat
	Kernel   string   // a series: 6.1 (the default) or 6.12
	CgroupV1 bool     // all controllers in version 1; only with kernel 6.1, because later ones are built without them
	Systemd  bool     // systemd as the first process, instead of busybox
	Stage    Stage
}

// withDefaults returns the guest with the defaults in the fields that are not set.
func (g Guest) withDefaults() Guest {
	if g.Topology.Name == "" {
		g.Topology = Flat
	}
	if g.Kernel == "" {
		g.Kernel = "6.1"
	}
	return g
}

func (g Guest) String() string {
	words := []string{g.Topology.Name, g.Kernel}
	if g.CgroupV1 {
		words = append(words, "v1")
	}
	if g.Systemd {
		words = append(words, "systemd")
	}
	return strings.Join(append(words, g.Stage.String()), " ")
}

// Result is the result of a command.
type Result = wire.Result

// Command is a program to run in a guest, with all options.
type Command = wire.Command

// Machine is a running guest. Its methods may be called from several goroutines, but methods without an
// error result end the test on an error, so only the test's goroutine may call them.
type Machine struct {
	Guest   Guest
	t       testing.TB
	process *process
	channel *channel
}

// Start starts a machine for the test from a snapshot, and ends it with the test. After a failure the
// guest's logs are kept. It needs root and QEMU; without them the test is skipped with the reason, except
// in CI, where it fails.
func Start(t testing.TB, g Guest) *Machine {
	t.Helper()
	g = g.withDefaults()
	if reason := whyUnavailable(); reason != "" {
		if os.Getenv("CI") != "" {
			t.Fatal(reason)
		}
		t.Skip(reason)
	}
	m, err := restore(g)
	if err != nil {
		t.Fatalf("virtual machine: %v", err)
	}
	m.t = t
	t.Cleanup(m.stop)
	return m
}

// whyUnavailable returns why this machine cannot run a guest; "" if it can.
func whyUnavailable() string {
	if os.Geteuid() != 0 {
		return "a virtual machine needs root, for owners and modes on its disk"
	}
	if _, err := qemuVersion(); err != nil {
		return err.Error()
	}
	return ""
}

func restore(g Guest) (*Machine, error) {
	dir, hardware, err := g.snapshot(context.Background())
	if err != nil {
		return nil, err
	}
	disk, err := payload()
	if err != nil {
		return nil, err
	}
	begun := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), restoreTimeout)
	defer cancel()
	p, err := start(ctx, hardware, launchOptions{
		disk: "format=qcow2,snapshot=on,file=" + filepath.Join(dir, layerFile), payload: disk, state: filepath.Join(dir, stateFile),
	})
	if err != nil {
		return nil, err
	}
	m := &Machine{Guest: g, process: p, channel: newChannel(p.address)}
	if err := m.finishRestore(ctx); err != nil {
		words, _ := os.ReadFile(p.outputFile())
		p.end()
		os.RemoveAll(p.dir)
		return nil, fmt.Errorf("%s: restore: %w\n%s", g, err, words)
	}
	printProgress("%s: restored in %.2f s", g, time.Since(begun).Seconds())
	return m, nil
}

// finishRestore lets the machine continue, sets its clock and mounts the programs.
func (m *Machine) finishRestore(ctx context.Context) error {
	if err := m.process.monitor.resume(ctx); err != nil {
		return err
	}
	if err := m.channel.awaitReady(ctx, m.process.exited); err != nil {
		return err
	}
	if err := m.channel.setClock(ctx); err != nil {
		return err
	}
	r, err := m.channel.exec(ctx, wire.Command{Argv: []string{"mount", "-t", "ext4", "-o", "ro", "/dev/vdb", payloadDir}})
	if err == nil && r.Code != 0 {
		err = fmt.Errorf("mount the programs: %s%s", r.Stderr, r.Err)
	}
	return err
}

func (m *Machine) stop() {
	if m.t.Failed() {
		m.keepLogs()
	}
	m.process.end()
	os.RemoveAll(m.process.dir)
}

// For returns the same machine with failures reported to another test, such as a subtest.
func (m *Machine) For(t testing.TB) *Machine {
	t.Helper()
	other := *m
	other.t = t
	return &other
}

// Exec runs a program to its end. An exit code other than 0 is no error.
func (m *Machine) Exec(ctx context.Context, argv ...string) (Result, error) {
	return m.channel.exec(ctx, Command{Argv: argv})
}

// Do is Exec with all options; with a Log it only starts the command.
func (m *Machine) Do(ctx context.Context, c Command) (Result, error) { return m.channel.exec(ctx, c) }

// Run runs a program, which must exit with 0, and returns its standard output without the last newline.
func (m *Machine) Run(argv ...string) string {
	m.t.Helper()
	ctx, cancel := callContext()
	defer cancel()
	r, err := m.Exec(ctx, argv...)
	if err == nil && r.Code != 0 {
		err = fmt.Errorf("ended with %d: %s%s%s", r.Code, r.Err, r.Stdout, r.Stderr)
	}
	if err != nil {
		m.t.Fatalf("%s: %q: %v", m.Guest, argv, err)
	}
	return strings.TrimSuffix(r.Stdout, "\n")
}

// Sh is Run for a shell script.
func (m *Machine) Sh(script string) string {
	m.t.Helper()
	return m.Run("/bin/sh", "-ec", script)
}

// Spawn starts a program in the background and returns its process id. Its output goes to /var/log/NAME.log.
func (m *Machine) Spawn(name string, argv ...string) int {
	m.t.Helper()
	ctx, cancel := callContext()
	defer cancel()
	r, err := m.Do(ctx, Command{Argv: argv, Log: "/var/log/" + name + ".log"})
	if err == nil && r.Err != "" {
		err = fmt.Errorf("did not start: %s", r.Err)
	}
	if err != nil {
		m.t.Fatalf("%s: %q: %v", m.Guest, argv, err)
	}
	return r.PID
}

// Get reads a file of the guest. A missing file gives fs.ErrNotExist.
func (m *Machine) Get(path string) ([]byte, error) {
	ctx, cancel := callContext()
	defer cancel()
	return m.channel.get(ctx, path)
}

// Read is Get for a file that must exist; it trims space at both ends.
func (m *Machine) Read(path string) string {
	m.t.Helper()
	b, err := m.Get(path)
	if err != nil {
		m.t.Fatalf("%s: read %s: %v", m.Guest, path, err)
	}
	return strings.TrimSpace(string(b))
}

// Put writes a file of the guest atomically, and makes the missing folders above it. It sends about 5 MB/s.
func (m *Machine) Put(path string, mode fs.FileMode, content []byte) {
	m.t.Helper()
	ctx, cancel := callContext()
	defer cancel()
	if err := m.channel.put(ctx, path, mode, bytes.NewReader(content)); err != nil {
		m.t.Fatalf("%s: write %s: %v", m.Guest, path, err)
	}
}

// Dial connects to a socket in the guest, such as unix /run/containerd/containerd.sock or tcp 127.0.0.1:10250.
func (m *Machine) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	return m.channel.dial(ctx, network, address)
}

// callContext returns a context for one call of the guest.
func callContext() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), callTimeout)
}

// PID is the process id of QEMU on the host.
func (m *Machine) PID() int { return m.process.pid }

// cleanups are the functions that Main calls at the end.
var cleanups struct {
	mu  sync.Mutex
	all []func()
}

func atEnd(do func()) {
	cleanups.mu.Lock()
	defer cleanups.mu.Unlock()
	cleanups.all = append(cleanups.all, do)
}

// Main runs a package's tests and then the final steps, and removes the programs that were built for them:
// func TestMain(m *testing.M) { vm.Main(m) }.
func Main(m *testing.M, after ...func() error) {
	code := m.Run()
	for _, do := range after {
		if err := do(); err != nil {
			printProgress("%v", err)
			code = max(code, 1)
		}
	}
	cleanups.mu.Lock()
	defer cleanups.mu.Unlock()
	for _, end := range cleanups.all {
		end()
	}
	os.Exit(code)
}
