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

// qemuProgram is the name of the QEMU program.
const qemuProgram = "qemu-system-x86_64"

// process is one running QEMU. The directory dir has the control socket, the console output and QEMU's own output.
type process struct {
	dir     string
	address string // the TCP address on the host's loopback that QEMU forwards to the helper program in the guest
	pid     int
	exited  chan struct{} // closed when QEMU has ended
	monitor *monitor      // the connection to the control socket; nil before QEMU has accepted it
}

// launchOptions has the arguments of QEMU that can differ between two runs of the same guest.
type launchOptions struct {
	disk    string // the drive options of the root disk
	payload string // the image file of the second disk, which has the programs of this checkout
	state   string // the snapshot's file from which QEMU loads the state of memory and devices; "" for a boot
}

// hardware returns the arguments of QEMU that define the guest: the machine, the kernel and the kernel parameters. The
// parameter clock is added to the kernel parameters. The key of a snapshot contains the result.
func (g Guest) hardware(k kernel, clock string) []string {
	line := "console=ttyS0 quiet loglevel=4 panic=-1 mitigations=off nokaslr net.ifnames=0 psi=1 audit=0 apparmor=0 " +
		"nowatchdog tsc=reliable no_timer_check rcupdate.rcu_expedited=1 cryptomgr.notests random.trust_cpu=on"
	if g.CgroupV1 {
		line += " trimtab.cgroup=v1"
	}
	line += clock
	args := []string{
		"-machine", "q35,hpet=off,smm=off",
		// Use one thread for all processors. With one thread for each processor, kernel 6.12 crashed twice on an int3
		// while the kernel patched its own code (QEMU 7.2), and two guests took 85 s instead of 59 to 71 s.
		"-accel", "tcg,thread=single,tb-size=512",
		// With the vendor id of QEMU, the guest does not see the threads of a core as siblings, and numbers the dies
		// wrongly.
		"-cpu", "max,vendor=GenuineIntel",
		"-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
		"-kernel", k.image, "-initrd", k.initrd, "-append", line,
	}
	return append(args, g.Topology.args()...)
}

// start runs QEMU and connects to the control socket. It chooses a free TCP port before it runs QEMU. If another
// program takes this port before QEMU does, QEMU ends at once, and start tries another port.
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

// startOnce runs QEMU with one TCP port. The parameter hardware has the arguments that define the guest.
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
		output, _ := os.ReadFile(p.outputFile())
		os.RemoveAll(dir)
		return nil, fmt.Errorf("start QEMU: %w; the output of QEMU:\n%s", err, output)
	}
	return p, nil
}

// socket returns the path of the control socket.
func (p *process) socket() string { return filepath.Join(p.dir, "qmp") }

// console returns the path of the file with the output on the guest's console.
func (p *process) console() string { return filepath.Join(p.dir, "console.log") }

// outputFile returns the path of the file with QEMU's own output.
func (p *process) outputFile() string { return filepath.Join(p.dir, "qemu.log") }

// run starts QEMU. QEMU must end when this process ends, even if this process is killed. With Pdeathsig, the kernel
// kills QEMU when the thread that started QEMU ends. So run starts QEMU from a thread that lives as long as QEMU.
func (p *process) run(args []string) error {
	output, err := os.Create(p.outputFile())
	if err != nil {
		return err
	}
	defer output.Close()
	cmd := exec.Command(qemuProgram, args...)
	cmd.Stdout, cmd.Stderr = output, output
	cmd.Env = append(os.Environ(), "TMPDIR="+p.dir) // where QEMU puts the temporary layer of a disk with snapshot=on
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

// connect waits until QEMU accepts connections on the control socket, and opens the monitor.
func (p *process) connect(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	return until(ctx, 5*time.Millisecond, func() (bool, error) {
		select {
		case <-p.exited:
			return false, errors.New("QEMU ended at once")
		default:
		}
		var err error
		p.monitor, err = openMonitor(ctx, p.socket())
		return err == nil, nil
	})
}

// removeStaleDirs removes the directories that killed test processes left. It does so once per process.
var removeStaleDirs = sync.OnceFunc(func() {
	dirs, _ := filepath.Glob(filepath.Join(os.TempDir(), "ttvm-*-*"))
	for _, dir := range dirs {
		pid, err := strconv.Atoi(strings.Split(filepath.Base(dir), "-")[1])
		if err == nil && errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
			_ = os.RemoveAll(dir)
		}
	}
})

// end stops QEMU, and waits until QEMU has ended. It first sends the command quit, and kills QEMU after quitTimeout.
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

// quitTimeout is how long QEMU may take to end after the command quit.
const quitTimeout = 5 * time.Second

// freeAddress returns a TCP address on the loopback whose port no program uses now.
func freeAddress(ctx context.Context) (string, error) {
	var c net.ListenConfig
	l, err := c.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}
