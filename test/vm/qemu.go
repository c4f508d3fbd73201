package vm

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/trimtab/trimtab/test/vm/wire"
)

const program = "qemu-system-x86_64"

// process is one running QEMU. Its folder has the control socket, the console and QEMU's output.
type process struct {
	dir     string
	address string // the agent's port, on the loopback
	pid     int
	exited  chan struct{} // closed when it has ended
	monitor *monitor
}

// launchOptions has what differs between two runs of the same guest.
type launchOptions struct {
	disk    string // drive options of the root disk
	payload string // image of the second disk
	state   string // the file from which memory and devices are loaded; empty for a boot
}

// hardware returns QEMU's arguments that define the guest. They are part of a snapshot's key, with the
// clock's argument.
func (g Guest) hardware(k kernel, clock string) []string {
	line := "console=ttyS0 quiet loglevel=4 panic=-1 mitigations=off nokaslr net.ifnames=0 psi=1 audit=0 apparmor=0 " +
		"nowatchdog tsc=reliable no_timer_check rcupdate.rcu_expedited=1 cryptomgr.notests random.trust_cpu=on"
	if g.CgroupV1 {
		line += " trimtab.cgroup=v1"
	}
	line += clock
	args := []string{
		"-machine", "q35,hpet=off,smm=off",
		// One thread for all processors: with one thread each, kernel 6.12 crashed twice on an int3 while
		// it patched its own code (QEMU 7.2), and two guests took 85 s instead of 59 to 71.
		"-accel", "tcg,thread=single,tb-size=512",
		// With QEMU's own vendor, threads of a core are not siblings in the guest and dies are numbered
		// wrongly.
		"-cpu", "max,vendor=GenuineIntel",
		"-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
		"-kernel", k.image, "-initrd", k.initrd, "-append", line,
	}
	return append(args, g.Topology.args()...)
}

// start runs QEMU and waits for its control socket. The port is chosen here, so another program may use it
// first; then QEMU ends at once and another port is tried.
func start(ctx context.Context, hardware []string, l launchOptions) (*process, error) {
	var last error
	for range 3 {
		p, err := startOnce(ctx, hardware, l)
		if err == nil {
			return p, nil
		}
		last = err
		if !strings.Contains(err.Error(), "Could not set up host forwarding") {
			break
		}
	}
	return nil, last
}

func startOnce(ctx context.Context, hardware []string, l launchOptions) (*process, error) {
	address, err := freeAddress(ctx)
	if err != nil {
		return nil, err
	}
	removeStaleDirs()
	dir, err := os.MkdirTemp("", fmt.Sprintf("ttvm-%d-", os.Getpid()))
	if err != nil {
		return nil, err
	}
	p := &process{dir: dir, address: address, exited: make(chan struct{})}
	args := append(hardware,
		"-drive", "if=none,id=root,cache=unsafe,"+l.disk, "-device", "virtio-blk-pci,drive=root",
		"-drive", "if=none,id=payload,format=raw,readonly=on,file="+l.payload, "-device", "virtio-blk-pci,drive=payload",
		"-netdev", fmt.Sprintf("user,id=net,hostfwd=tcp:%s-:%d", address, wire.Port),
		"-device", "virtio-net-pci,netdev=net,romfile=", "-device", "virtio-rng-pci",
		"-serial", "file:"+p.console(), "-qmp", "unix:"+p.socket()+",server=on,wait=off",
	)
	if l.state != "" {
		args = append(args, "-incoming", "exec:cat <'"+l.state+"'")
	}
	if err := p.run(args); err != nil {
		os.RemoveAll(dir)
		return nil, err
	}
	if err := p.connect(ctx); err != nil {
		p.end()
		words, _ := os.ReadFile(p.outputFile())
		os.RemoveAll(dir)
		return nil, fmt.Errorf("start QEMU: %w\n%s", err, words)
	}
	return p, nil
}

func (p *process) socket() string     { return filepath.Join(p.dir, "qmp") }
func (p *process) console() string    { return filepath.Join(p.dir, "console.log") }
func (p *process) outputFile() string { return filepath.Join(p.dir, "qemu.log") }

// run starts QEMU from a thread that lives as long as QEMU does, because the kernel ends QEMU together with
// the thread that started it. So QEMU ends with this process, however that ends.
func (p *process) run(args []string) error {
	words, err := os.Create(p.outputFile())
	if err != nil {
		return err
	}
	defer words.Close()
	cmd := exec.Command(program, args...)
	cmd.Stdout, cmd.Stderr = words, words
	cmd.Env = append(os.Environ(), "TMPDIR="+p.dir) // the directory of the layer of a throw-away disk
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	begun := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer close(p.exited)
		err := cmd.Start()
		begun <- err
		if err == nil {
			_ = cmd.Wait()
		}
	}()
	if err := <-begun; err != nil {
		return err
	}
	p.pid = cmd.Process.Pid
	return nil
}

func (p *process) connect(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	return until(ctx, 5*time.Millisecond, func() (bool, error) {
		select {
		case <-p.exited:
			return false, errors.New("it ended at once")
		default:
		}
		var err error
		p.monitor, err = openMonitor(ctx, p.socket())
		return err == nil, nil
	})
}

// removeStaleDirs removes, once per process, the folders of processes that were killed.
var removeStaleDirs = sync.OnceFunc(func() {
	dirs, _ := filepath.Glob(filepath.Join(os.TempDir(), "ttvm-*-*"))
	for _, dir := range dirs {
		pid, err := strconv.Atoi(strings.Split(filepath.Base(dir), "-")[1])
		if err == nil && errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
			_ = os.RemoveAll(dir)
		}
	}
})

// end stops QEMU, first gracefully, and waits until it has ended.
func (p *process) end() {
	if p.monitor != nil {
		_ = p.monitor.do("quit", nil, nil)
		p.monitor.close()
	}
	select {
	case <-p.exited:
		return
	case <-time.After(quitTimeout):
	}
	_ = syscall.Kill(p.pid, syscall.SIGKILL) // the process is not reaped yet, so no other process has its pid
	<-p.exited
}

const quitTimeout = 5 * time.Second

func freeAddress(ctx context.Context) (string, error) {
	var c net.ListenConfig
	l, err := c.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}
