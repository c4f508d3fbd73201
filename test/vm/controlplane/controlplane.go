// Package controlplane runs a real etcd and kube-apiserver on the loopback address of this machine, in a directory of
// the test. The API server has the usual authorisers (Node, RBAC) and admission plugins (NodeRestriction,
// ServiceAccount).
package controlplane

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// patience is the longest duration of each wait. An idle machine needs three seconds for all waits together.
const patience = 2 * time.Minute

// Plane is a running control plane.
type Plane struct {
	// Dir is the directory of the control plane's files, with the logs etcd.log and kube-apiserver.log.
	Dir string
	// URL is the API server's address. Port is the API server's port on 127.0.0.1.
	URL  string
	Port int
	// CA is the file with the API server's certificate.
	CA string

	t           testing.TB
	etcd        string // client URL of etcd
	etcdProcess *process
	apiServer   *process
	bin         map[string]string // the directories of programs, by name
}

// HostAddress is the host's address in QEMU's user network, by which guests reach this machine's loopback address. The
// API server's certificate has HostAddress and 127.0.0.1.
const HostAddress = "10.0.2.2"

// ServiceAddress is the address of the API server's service for pods, at port 443.
const ServiceAddress = "10.96.0.1"

// Admin is the user with all rights.
const Admin = "admin"

// Start builds missing programs and returns a ready control plane, which ends with the test. flags are additional flags
// of the API server.
func Start(t testing.TB, flags ...string) *Plane {
	t.Helper()
	p := &Plane{Dir: t.TempDir(), t: t, bin: map[string]string{}}
	p.buildTools("etcd", "kube-apiserver")
	ports := freePorts(t, 3)
	p.etcd, p.Port = fmt.Sprintf("http://127.0.0.1:%d", ports[0]), ports[2]
	p.URL, p.CA = fmt.Sprintf("https://127.0.0.1:%d", p.Port), filepath.Join(p.Dir, "certs", "apiserver.crt")
	p.writeServiceAccountKey()
	// Users of tests: the administrator, and nodes n1 to n4 as their kubelets.
	users := Admin + "-token," + Admin + ",1,system:masters\n"
	for i := 1; i <= 4; i++ {
		users += fmt.Sprintf("n%d-token,system:node:n%d,node%d,system:nodes\n", i, i, i)
	}
	p.write("users.csv", users)
	peer := fmt.Sprintf("http://127.0.0.1:%d", ports[1])
	p.etcdProcess = p.run(p.bin["etcd"]+"/server", "etcd.log", "--data-dir", filepath.Join(p.Dir, "etcd"), "--listen-client-urls", p.etcd, "--advertise-client-urls", p.etcd,
		"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", "default="+peer, "--unsafe-no-fsync", "--log-level", "warn")
	p.StartServer(flags...)
	return p
}

// StartServer starts the API server with additional flags. After StopServer, it starts the API server again with the
// same objects and port.
func (p *Plane) StartServer(flags ...string) {
	p.t.Helper()
	key := filepath.Join(p.Dir, "sa.key")
	args := []string{
		"--etcd-servers=" + p.etcd, fmt.Sprintf("--secure-port=%d", p.Port), "--bind-address=127.0.0.1", "--advertise-address=" + HostAddress,
		"--cert-dir=" + filepath.Join(p.Dir, "certs"), "--token-auth-file=" + filepath.Join(p.Dir, "users.csv"),
		"--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction",
		"--service-account-issuer=https://kubernetes.default.svc", "--service-account-key-file=" + key, "--service-account-signing-key-file=" + key,
		"--api-audiences=https://kubernetes.default.svc", "--service-cluster-ip-range=10.96.0.0/16", "--endpoint-reconciler-type=none", "--profiling=false", "--v=1",
	}
	p.apiServer = p.run(p.bin["kube-apiserver"]+"/kube-apiserver", "kube-apiserver.log", append(args, flags...)...)
	p.Wait("the API server is ready", func(ctx context.Context) error { return p.ready(ctx) })
}

// StopServer ends the API server; etcd keeps running.
func (p *Plane) StopServer() {
	p.t.Helper()
	p.apiServer.end()
}

// Processes returns the pids of etcd and the API server.
func (p *Plane) Processes() (etcd, server int) {
	return p.etcdProcess.cmd.Process.Pid, p.apiServer.cmd.Process.Pid
}

// Config returns the client configuration of a user that Start created: Admin, or n1 to n4.
func (p *Plane) Config(user string) *rest.Config {
	return &rest.Config{Host: p.URL, BearerToken: user + "-token", TLSClientConfig: rest.TLSClientConfig{CAFile: p.CA}, QPS: -1}
}

// Dynamic returns a client for a user that Start created: Admin, or n1 to n4.
func (p *Plane) Dynamic(user string) dynamic.Interface {
	p.t.Helper()
	d, err := dynamic.NewForConfig(p.Config(user))
	if err != nil {
		p.t.Fatal(err)
	}
	return d
}

// Kubeconfig writes a kubeconfig file with a token, and returns the path of the file.
func (p *Plane) Kubeconfig(name, token string) string {
	p.t.Helper()
	c := clientcmdapi.NewConfig()
	c.Clusters["c"] = &clientcmdapi.Cluster{Server: p.URL, CertificateAuthority: p.CA}
	c.AuthInfos["u"] = &clientcmdapi.AuthInfo{Token: token}
	c.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	c.CurrentContext = "x"
	path := filepath.Join(p.Dir, name+".kubeconfig")
	if err := clientcmd.WriteToFile(*c, path); err != nil {
		p.t.Fatal(err)
	}
	return path
}

// Wait calls done until done returns nil. After the time patience, Wait fails the test with the last error of done.
func (p *Plane) Wait(what string, done func(context.Context) error) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), patience)
	defer cancel()
	for {
		err := done(ctx)
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			p.t.Fatalf("%s: waited %s in vain: %v", what, patience, err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// ready returns nil if a request for /readyz of the API server succeeds, and otherwise an error.
func (p *Plane) ready(ctx context.Context) error {
	select {
	case <-p.apiServer.ended:
		return errors.New("the API server ended: see the end of kube-apiserver.log")
	default:
	}
	c, err := rest.UnversionedRESTClientFor(withCodec(p.Config(Admin)))
	if err != nil {
		return err
	}
	return c.Get().AbsPath("/readyz").Do(ctx).Error()
}

// process is a running program.
type process struct {
	cmd   *exec.Cmd
	ended chan struct{} // closed when the program has ended
}

// end kills the program and waits for its end.
func (p *process) end() {
	_ = p.cmd.Process.Kill()
	<-p.ended
}

// run starts a program in a process group of its own. When the test ends, run kills the program, because an API server
// without etcd takes minutes to end by itself.
func (p *Plane) run(program, log string, args ...string) *process {
	p.t.Helper()
	out, err := os.OpenFile(filepath.Join(p.Dir, log), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		p.t.Fatal(err)
	}
	defer out.Close()
	cmd := exec.Command(program, args...)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	started := make(chan error)
	running := &process{cmd: cmd, ended: make(chan struct{})}
	go func() { // Pdeathsig kills the program when the thread that started it ends, so keep this thread
		defer close(running.ended)
		runtime.LockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		p.t.Fatalf("start %s: %v", program, err)
	}
	p.t.Cleanup(func() {
		running.end()
		if p.t.Failed() {
			text, _ := os.ReadFile(filepath.Join(p.Dir, log))
			lines := bytes.Split(text, []byte("\n"))
			p.t.Logf("the end of %s:\n%s", log, bytes.Join(lines[max(0, len(lines)-20):], []byte("\n")))
		}
	})
	return running
}

// buildTools builds the named programs that are missing, and stores the directories of all named programs in p.bin.
func (p *Plane) buildTools(names ...string) {
	p.t.Helper()
	_, file, _, _ := runtime.Caller(0)
	cmd := exec.Command(filepath.Join(filepath.Dir(file), "../../tools/build.sh"), names...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		p.t.Fatalf("build %s: %v", strings.Join(names, ", "), err)
	}
	for i, dir := range strings.Fields(string(out)) {
		p.bin[names[i]] = dir
	}
}

// writeServiceAccountKey makes the key that signs tokens of service accounts, and writes it to the file sa.key.
func (p *Plane) writeServiceAccountKey() {
	p.t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		p.t.Fatal(err)
	}
	p.write("sa.key", string(pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})))
}

// write writes a file in p.Dir.
func (p *Plane) write(name, text string) {
	p.t.Helper()
	if err := os.WriteFile(filepath.Join(p.Dir, name), []byte(text), 0o600); err != nil {
		p.t.Fatal(err)
	}
}

// freePorts returns n TCP ports of 127.0.0.1 that no program uses now.
func freePorts(t testing.TB, n int) []int {
	t.Helper()
	var ports []int
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	return ports
}
