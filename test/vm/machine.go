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

// The timeouts are about four times as long as the steps take on an idle host with two cores.
const (
	bootTimeout    = 10 * time.Minute
	restoreTimeout = 3 * time.Minute
	callTimeout    = 2 * time.Minute
)

// Guest describes the machine that a test needs.
type Guest struct {
	Topology Topology // the default is Flat
	Kernel   string   // a series: 6.1 (the default) or 6.12
	CgroupV1 bool     // cgroup v1 has all controllers; only with kernel 6.1, because later kernels lack some of them
	Systemd  bool     // systemd as the first process, instead of busybox
	Stage    Stage    // what runs in the guest when Start returns it to the test; the default is Bare
}

// withDefaults returns a copy of the guest, in which the fields that are not set have their defaults.
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

// Command is a program to run in a guest, with its options.
type Command = wire.Command

// Machine is a running guest. Several goroutines may call its methods that return an error. All other methods end the
// test at an error, so only the test's goroutine may call them.
type Machine struct {
	Guest   Guest
	t       testing.TB
	process *process
	client  *guestClient
}

// Start starts a machine for the test from a snapshot, and ends the machine with the test. If the test fails, Start
// keeps the guest's logs. Start needs root and QEMU. If one is missing, Start skips the test, but in CI the test fails.
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
		t.Fatalf("start a virtual machine: %v", err)
	}
	m.t = t
	t.Cleanup(m.stop)
	return m
}

// whyUnavailable returns the reason why this host cannot run a guest, or "" if it can run a guest.
func whyUnavailable() string {
	if os.Geteuid() != 0 {
		return "a virtual machine needs root, because the files on its disk need owners and modes"
	}
	if _, err := qemuVersion(); err != nil {
		return err.Error()
	}
	return ""
}

// restore starts QEMU with the state of the guest's snapshot, and makes the guest ready for the test.
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
	m := &Machine{Guest: g, process: p, client: newGuestClient(p.address)}
	if err := m.finishRestore(ctx); err != nil {
		output, _ := os.ReadFile(p.outputFile())
		p.end()
		os.RemoveAll(p.dir)
		return nil, fmt.Errorf("restore the snapshot of %s: %w; the output of QEMU:\n%s", g, err, output)
	}
	printProgress("%s: restored the snapshot in %.2f s", g, time.Since(begun).Seconds())
	return m, nil
}

// finishRestore lets the guest continue, sets the guest's clock, and mounts the disk with the programs of this
// checkout.
func (m *Machine) finishRestore(ctx context.Context) error {
	if err := m.process.monitor.resume(ctx); err != nil {
		return err
	}
	if err := m.client.awaitReady(ctx, m.process.exited); err != nil {
		return err
	}
	if err := m.client.setClock(ctx); err != nil {
		return err
	}
	r, err := m.client.exec(ctx, wire.Command{Argv: []string{"mount", "-t", "ext4", "-o", "ro", "/dev/vdb", payloadDir}})
	if err == nil && r.Code != 0 {
		err = fmt.Errorf("mount the disk with the programs: %s%s", r.Stderr, r.Err)
	}
	return err
}

// stop ends the machine. If the test has failed, stop first saves the logs.
func (m *Machine) stop() {
	if m.t.Failed() {
		m.keepLogs()
	}
	m.process.end()
	os.RemoveAll(m.process.dir)
}

// For returns a Machine for the same guest that reports failures to another test, such as a subtest.
func (m *Machine) For(t testing.TB) *Machine {
	t.Helper()
	other := *m
	other.t = t
	return &other
}

// Exec runs a program and waits until the program ends. An exit code other than 0 is no error.
func (m *Machine) Exec(ctx context.Context, argv ...string) (Result, error) {
	return m.client.exec(ctx, Command{Argv: argv})
}

// Do runs a program with the options in c. It waits until the program ends, except if c.Log is set: the program then
// runs in the background.
func (m *Machine) Do(ctx context.Context, c Command) (Result, error) { return m.client.exec(ctx, c) }

// Run runs a program, which must exit with 0, and returns its standard output without the last newline.
func (m *Machine) Run(argv ...string) string {
	m.t.Helper()
	ctx, cancel := callContext()
	defer cancel()
	r, err := m.Exec(ctx, argv...)
	if err == nil && r.Code != 0 {
		err = fmt.Errorf("the program ended with exit code %d: %s%s%s", r.Code, r.Err, r.Stdout, r.Stderr)
	}
	if err != nil {
		m.t.Fatalf("%s: run %q: %v", m.Guest, argv, err)
	}
	return strings.TrimSuffix(r.Stdout, "\n")
}

// Sh runs a shell script with sh -e, which must exit with 0. It returns the standard output without the last newline.
func (m *Machine) Sh(script string) string {
	m.t.Helper()
	return m.Run("/bin/sh", "-ec", script)
}

// Spawn starts a program in the background and returns its process id. The program's output goes to /var/log/NAME.log
// of the guest.
func (m *Machine) Spawn(name string, argv ...string) int {
	m.t.Helper()
	ctx, cancel := callContext()
	defer cancel()
	r, err := m.Do(ctx, Command{Argv: argv, Log: "/var/log/" + name + ".log"})
	if err == nil && r.Err != "" {
		err = fmt.Errorf("the program did not start: %s", r.Err)
	}
	if err != nil {
		m.t.Fatalf("%s: start %q: %v", m.Guest, argv, err)
	}
	return r.PID
}

// Get returns the content of a file of the guest. If the file is missing, the error is fs.ErrNotExist.
func (m *Machine) Get(path string) ([]byte, error) {
	ctx, cancel := callContext()
	defer cancel()
	return m.client.get(ctx, path)
}

// Read returns the content of a file of the guest without space at both ends. If the file is missing, the test fails.
func (m *Machine) Read(path string) string {
	m.t.Helper()
	b, err := m.Get(path)
	if err != nil {
		m.t.Fatalf("%s: read %s: %v", m.Guest, path, err)
	}
	return strings.TrimSpace(string(b))
}

// Put writes a file of the guest atomically, and makes the missing directories above the file. The transfer has about 5
// MB/s.
func (m *Machine) Put(path string, mode fs.FileMode, content []byte) {
	m.t.Helper()
	ctx, cancel := callContext()
	defer cancel()
	if err := m.client.put(ctx, path, mode, bytes.NewReader(content)); err != nil {
		m.t.Fatalf("%s: write %s: %v", m.Guest, path, err)
	}
}

// Dial connects to a socket in the guest, such as unix /run/containerd/containerd.sock or tcp 127.0.0.1:10250.
func (m *Machine) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	return m.client.dial(ctx, network, address)
}

// callContext returns a context for one request to the guest, with callTimeout.
func callContext() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), callTimeout)
}

// PID returns the process id of QEMU on the host.
func (m *Machine) PID() int { return m.process.pid }

// cleanups are the functions that Main calls at the end.
var cleanups struct {
	mu  sync.Mutex
	all []func()
}

// atEnd lets Main call do after the tests.
func atEnd(do func()) {
	cleanups.mu.Lock()
	defer cleanups.mu.Unlock()
	cleanups.all = append(cleanups.all, do)
}

// Main runs the tests of a package and then the functions in after. It removes the programs that this package built for
// the tests, and exits. Each test package calls it: func TestMain(m *testing.M) { vm.Main(m) }.
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
