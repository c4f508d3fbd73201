package real_test

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/trimtab/trimtab/internal/ociedit"
	"github.com/trimtab/trimtab/test/real"
	"github.com/trimtab/trimtab/test/real/internal/host"
)

// docker is Debian's Docker with directories, sockets and process ids of its own.
type docker struct {
	t        *testing.T
	dir, cli string
	init     int // the process that is dockerd in its own PID namespace
}

// TestDocker installs trimtab-oci for Docker with the words of docs/oci-wrapper.md. It reads the result in the processes
// of containers. The decisions are written as the CRI proxy writes them; cri-dockerd takes no part.
func TestDocker(t *testing.T) {
	if !real.Privately(t) {
		return
	}
	page, err := os.ReadFile("../../docs/oci-wrapper.md")
	if err != nil {
		t.Fatal(err)
	}
	settings := block(t, string(page), `"onError"`)
	ownFiles(t)
	put(t, "/etc/docker/daemon.json", block(t, string(page), `"default-runtime"`))
	put(t, "/etc/trimtab/oci.json", settings)
	buildWrapper(t, "/usr/local/bin/trimtab-oci")
	d := startDocker(t)
	if got := d.run("info", "-f", "{{.DefaultRuntime}}"); got != "trimtab" {
		t.Fatalf("the default runtime is %q", got)
	}
	d.load("probe")

	// A decision is in force in the container.
	id := d.create("probe")
	if err := ociedit.WriteDecision(ociedit.DefaultDirectory, ociedit.Decision{
		ID: id, Rlimits: []ociedit.Rlimit{{Type: "RLIMIT_CORE", Hard: 512, Soft: 256}}, Env: []ociedit.Env{{Name: "LAYER", Value: "front"}},
	}); err != nil {
		t.Fatal(err)
	}
	d.run("start", id)
	if err := ociedit.ReadResult(ociedit.DefaultDirectory, id); err != nil {
		t.Error(err)
	}
	if got := d.coreLimit(id); got != "256 512" {
		t.Errorf("the limit of core files is %q", got)
	}
	if got := d.run("logs", id); !strings.Contains(got, "LAYER") {
		t.Errorf("the container prints %s", got)
	}
	d.run("restart", "-t", "1", id)
	if got := d.coreLimit(id); got != "256 512" {
		t.Errorf("after a restart the limit of core files is %q", got)
	}

	// A container without a decision is created as it is.
	plain := d.create("probe")
	d.run("start", plain)
	if got := d.coreLimit(plain); got == "256 512" {
		t.Errorf("the limit of core files of another container is %q", got)
	}

	// A decision that cannot be read: by the settings the container goes without it, or does not start.
	broken := d.create("probe")
	put(t, filepath.Join(ociedit.DefaultDirectory, broken+".json"), "{")
	d.run("start", broken)
	if err := ociedit.ReadResult(ociedit.DefaultDirectory, broken); err == nil || errors.Is(err, ociedit.ErrNotRead) {
		t.Errorf("the result of a decision that cannot be read: %v", err)
	}
	put(t, "/etc/trimtab/oci.json", strings.Replace(settings, `"ignore"`, `"fail"`, 1))
	refused := d.create("probe")
	put(t, filepath.Join(ociedit.DefaultDirectory, refused+".json"), "{")
	if out, err := d.try("start", refused); err == nil || !strings.Contains(out, "trimtab-oci: read the decision of container "+refused) {
		t.Errorf("the start of a container without its decision: %v, %s", err, out)
	}
}

// block returns the block of a page that has a text.
func block(t *testing.T, page, has string) string {
	t.Helper()
	for i, text := range strings.Split(page, "```") {
		if kind, body, _ := strings.Cut(text, "\n"); i%2 == 1 && kind == "json" && strings.Contains(body, has) {
			return body
		}
	}
	t.Fatalf("docs/oci-wrapper.md has no block with %s", has)
	return ""
}

// ownFiles gives this process an /etc and a /usr/local/bin that it may change: no other process sees them.
func ownFiles(t *testing.T) {
	t.Helper()
	const above = "/run/etc"
	err := errors.Join(os.MkdirAll(above+"/upper", 0o755), os.MkdirAll(above+"/work", 0o755),
		syscall.Mount("overlay", "/etc", "overlay", 0, "lowerdir=/etc,upperdir="+above+"/upper,workdir="+above+"/work"),
		syscall.Mount("trimtab", "/usr/local/bin", "tmpfs", 0, "mode=755"))
	if err != nil {
		t.Fatalf("files of its own: %v", err)
	}
}

func put(t *testing.T, file, text string) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, []byte(text), 0o600)); err != nil {
		t.Fatal(err)
	}
}

// buildWrapper builds trimtab-oci as releases have it.
func buildWrapper(t *testing.T, program string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", program, "./cmd/trimtab-oci")
	cmd.Dir, cmd.Env = filepath.Join("..", ".."), append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build trimtab-oci: %v\n%s", err, out)
	}
}

// startDocker starts Docker without a network, and removes all of it at the test's end. It is the first process of a PID
// namespace: nothing of it outlives it.
func startDocker(t *testing.T) *docker {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "../tools/docker.sh")
	cmd.Stderr = os.Stderr
	folder, err := cmd.Output()
	if err != nil {
		t.Fatalf("docker.sh: %v", err)
	}
	bin := strings.TrimSpace(string(folder))
	dir, err := os.MkdirTemp("/tmp", "ttdocker") // not t.TempDir: a socket's path has at most 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	d := &docker{t: t, dir: dir, cli: filepath.Join(bin, "docker")}
	parent := fmt.Sprintf("/trimtab-test-docker-%d", os.Getpid())
	log := &bytes.Buffer{}
	daemon := exec.Command("unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "--propagation", "private", filepath.Join(bin, "dockerd"), //nolint:gosec // Debian's
		"--data-root", filepath.Join(dir, "data"), "--exec-root", filepath.Join(dir, "exec"), "--pidfile", filepath.Join(dir, "pid"), "-H", d.socket(),
		"--storage-driver", "vfs", "--cgroup-parent", parent, "--bridge=none", "--iptables=false", "--ip6tables=false", "--ip-forward=false", "--ip-masq=false")
	daemon.Stdout, daemon.Stderr = log, log
	daemon.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	t.Cleanup(func() {
		if daemon.Process != nil {
			_ = daemon.Process.Kill()
			_ = daemon.Wait()
		}
		if t.Failed() {
			t.Logf("dockerd:\n%s", log)
		}
		if err := host.Sweep(dir, parent); err != nil {
			t.Errorf("cleanup of Docker: %v", err)
		}
	})
	if err := daemon.Start(); err != nil {
		t.Fatal(err)
	}
	real.Eventually(t, time.Minute, func() error {
		_, err := d.try("version")
		return err
	})
	children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", daemon.Process.Pid, daemon.Process.Pid))
	if err == nil {
		_, err = fmt.Sscan(string(children), &d.init)
	}
	if err != nil {
		t.Fatalf("the process of dockerd: %v", err)
	}
	return d
}

func (d *docker) socket() string { return "unix://" + filepath.Join(d.dir, "d.sock") }

// try runs a command of Docker.
func (d *docker) try(args ...string) (string, error) {
	out, err := exec.CommandContext(d.t.Context(), d.cli, append([]string{"--config", d.dir, "-H", d.socket()}, args...)...).CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

// run runs a command that must succeed.
func (d *docker) run(args ...string) string {
	d.t.Helper()
	out, err := d.try(args...)
	if err != nil {
		d.t.Fatalf("docker %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

// load makes an image with the probe alone.
func (d *docker) load(name string) {
	d.t.Helper()
	program, archive := real.Probe(d.t), &bytes.Buffer{}
	w := tar.NewWriter(archive)
	_, err := 0, w.WriteHeader(&tar.Header{Name: "probe", Mode: 0o755, Size: int64(len(program))})
	if err == nil {
		_, err = w.Write(program)
	}
	if err = errors.Join(err, w.Close()); err != nil {
		d.t.Fatal(err)
	}
	cmd := exec.CommandContext(d.t.Context(), d.cli, "--config", d.dir, "-H", d.socket(), "import", "-", name)
	cmd.Stdin = archive
	if out, err := cmd.CombinedOutput(); err != nil {
		d.t.Fatalf("docker import: %v\n%s", err, out)
	}
}

// create makes a container that does not run yet. Docker calls the OCI runtime when it starts.
func (d *docker) create(image string) string {
	d.t.Helper()
	return d.run("create", "--network", "none", image, "/probe")
}

// coreLimit returns the limits of core files of a container's first process, the soft and the hard one.
func (d *docker) coreLimit(id string) string {
	d.t.Helper()
	var pid int
	if err := json.Unmarshal([]byte(d.run("inspect", "-f", "{{.State.Pid}}", id)), &pid); err != nil || pid == 0 {
		d.t.Fatalf("the process of container %s: %d, %v", id, pid, err)
	}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/root/proc/%d/limits", d.init, pid))
	if err != nil {
		d.t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if rest, is := strings.CutPrefix(line, "Max core file size"); is {
			return strings.Join(strings.Fields(rest)[:2], " ")
		}
	}
	return ""
}
