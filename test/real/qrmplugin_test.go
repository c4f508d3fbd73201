package real_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/trimtab/trimtab/test/real"
)

// qrmPlugin builds the example of a resource plugin.
var qrmPlugin = sync.OnceValues(func() (string, error) {
	out := filepath.Join(buildDir, "qrmplugin")
	cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-o", out, "./examples/qrmplugin")
	cmd.Dir = filepath.Join("..", "..")
	if text, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build examples/qrmplugin: %w\n%s", err, text)
	}
	return out, nil
})

// podsOf serves the pods of a kubelet at /pods.
type podsOf struct {
	mu   sync.Mutex
	pods map[string]string // by UID, as JSON
}

func (p *podsOf) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []string
	for _, pod := range p.pods {
		all = append(all, pod)
	}
	fmt.Fprintf(w, `{"kind":"PodList","apiVersion":"v1","items":[%s]}`, strings.Join(all, ","))
}

// put adds a pod whose container app requests interfaces.
func (p *podsOf) put(spec real.PodSpec, nics int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	requests := `"cpu":"100m"`
	if nics > 0 {
		requests += fmt.Sprintf(`,"example.com/nic":"%d"`, nics)
	}
	p.pods[spec.UID] = fmt.Sprintf(`{"metadata":{"namespace":%q,"name":%q,"uid":%q},"spec":{"nodeName":"n1","containers":[{"name":"app","resources":{"requests":{%s}}}]},"status":{"qosClass":"Burstable"}}`,
		spec.Namespace, spec.Name, spec.UID, requests)
}

func (p *podsOf) drop(uid string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.pods, uid)
}

// nicPlugin runs processes of the plugin, one after another with the same state.
type nicPlugin struct {
	t       *testing.T
	dir     string
	state   string
	device  string
	mount   string
	program string
	made    int
	cmd     *exec.Cmd
}

func newNICPlugin(t *testing.T, a *trimtab) *nicPlugin {
	t.Helper()
	program, err := qrmPlugin()
	if err != nil {
		t.Fatal(err)
	}
	p := &nicPlugin{
		t: t, program: program, dir: filepath.Join(a.dir, "plugins"), state: filepath.Join(a.dir, "nics.json"),
		device: filepath.Join(a.dir, "nicdev"), mount: filepath.Join(a.dir, "nicdir"),
	}
	if err := errors.Join(os.Mkdir(p.mount, 0o755), unix.Mknod(p.device, unix.S_IFCHR|0o666, int(unix.Mkdev(1, 5)))); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.kill)
	return p
}

// start starts a process, with another socket name each time.
func (p *nicPlugin) start() {
	p.t.Helper()
	p.made++
	p.cmd = exec.Command(p.program, "-dir", p.dir, "-state", p.state, "-socket", fmt.Sprintf("nic%d.sock", p.made),
		"-nics", "eth1@0,eth2@0,eth3@0", "-device", p.device, "-mount", p.mount+":/run/nic")
	p.cmd.Stderr = os.Stderr
	if err := p.cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
}

func (p *nicPlugin) kill() {
	if p.cmd != nil {
		_ = p.cmd.Process.Kill()
		_ = p.cmd.Wait()
		p.cmd = nil
	}
}

func (p *nicPlugin) signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}

// given returns the owner of each interface, from the plugin's own file.
func (p *nicPlugin) given() map[string]map[string][]string {
	p.t.Helper()
	out := map[string]map[string][]string{}
	data, err := os.ReadFile(p.state)
	if errors.Is(err, fs.ErrNotExist) {
		return out
	}
	if err := errors.Join(err, json.Unmarshal(data, &out)); err != nil {
		p.t.Error(err)
	}
	return out
}

// until waits until the agent reports a state of the plugin.
func (p *nicPlugin) until(a *trimtab, what string, is func(socket string, answering bool, pending int) bool) {
	p.t.Helper()
	real.Eventually(p.t, patiently, func() error {
		var n struct {
			ResourcePlugins struct {
				Plugins []struct {
					Socket          string
					Answering       bool
					PendingRemovals int
				}
			}
		}
		if err := a.get("/v1/status", &n); err != nil {
			return err
		}
		for _, one := range n.ResourcePlugins.Plugins {
			if is(one.Socket, one.Answering, one.PendingRemovals) {
				return nil
			}
		}
		return fmt.Errorf("not yet: %s: %+v", what, n.ResourcePlugins)
	})
}

func (p *nicPlugin) registered(a *trimtab) {
	p.t.Helper()
	p.until(a, "registered", func(socket string, _ bool, _ int) bool {
		return strings.HasSuffix(socket, fmt.Sprintf("nic%d.sock", p.made))
	})
}

// nicPods creates and removes pods, and knows the owner of each interface.
type nicPods struct {
	t         *testing.T
	c         *real.Containerd
	kube      *podsOf
	made      int
	counts    map[string]int
	owner     map[string]string // the pod, by interface
	has       map[string]string // the interface, by pod
	uids      map[string]string // by pod
	sandboxes map[string]real.PodID
}

// run creates a pod with a container that requests interfaces, and returns the error of its creation.
func (n *nicPods) run(nics int) (name string, id real.ContainerID, err error) {
	n.t.Helper()
	n.made++
	spec := plain(fmt.Sprintf("pod%d", n.made), "")
	spec.UID = fmt.Sprintf("00000000-0000-0000-0000-%012d", n.made)
	n.kube.put(spec, nics)
	n.uids[spec.Name] = spec.UID
	n.sandboxes[spec.Name] = n.c.RunPod(spec)
	id, err = n.c.TryCreateContainer(n.sandboxes[spec.Name], real.ContainerSpec{Name: "app", Resources: &cri.LinuxContainerResources{CpuShares: 102}})
	if err != nil {
		n.counts["refused"]++
		return spec.Name, "", err
	}
	n.c.StartContainer(id)
	n.counts["created"]++
	nic := n.c.FirstView(id).Env["NICS"]
	if nics == 0 {
		same(n.t, spec.Name+" without a request", nic, "")
		return spec.Name, id, nil
	}
	if other := n.owner[nic]; nic == "" || other != "" {
		n.t.Errorf("%s has interface %q, which %q has", spec.Name, nic, other)
	}
	n.owner[nic], n.has[spec.Name] = spec.Name, nic
	return spec.Name, id, nil
}

func (n *nicPods) end(name string) {
	n.t.Helper()
	n.c.RemovePod(n.sandboxes[name])
	n.kube.drop(n.uids[name])
	delete(n.owner, n.has[name])
	delete(n.has, name)
	delete(n.sandboxes, name)
	n.counts["ended"]++
}

// TestResourcePlugin runs the example of a resource plugin through NRI and through the CRI proxy. The
// plugin is killed, hangs and is replaced while pods are created and removed. No two containers have the
// same interface, a pod whose interfaces are not available is not created, and the interfaces of ended pods
// are free at the end.
func TestResourcePlugin(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"nri", "cri"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			var options []real.Option
			if how == "cri" {
				options = append(options, real.WithoutNRI())
			}
			c := real.Start(t, options...)
			kube := &podsOf{pods: map[string]string{}}
			server := httptest.NewServer(kube)
			t.Cleanup(server.Close)
			a := newTrimtab(t)
			config := fmt.Sprintf("resourcePlugins: {directory: %s, timeoutMilliseconds: 700, reconcileSeconds: 1, failurePolicy: fail}\n"+
				"podspec: {kubelet: {url: %q, podsSocket: \"\", podResourcesSocket: \"\", nodeName: n1}, waitMilliseconds: 1000}\n", filepath.Join(a.dir, "plugins"), server.URL)
			if how == "cri" {
				config = a.between(c) + config
			}
			a.configure(c, config)
			a.run()
			a.attached()
			if how == "cri" {
				c.Through(a.proxy())
			}
			p := newNICPlugin(t, a)
			p.start()
			p.registered(a)
			n := &nicPods{t: t, c: c, kube: kube, counts: map[string]int{}, owner: map[string]string{}, has: map[string]string{}, uids: map[string]string{}, sandboxes: map[string]real.PodID{}}
			playResourcePlugin(t, a, p, n)
			t.Logf("%s: %d containers created, %d refused, %d pods ended; the plugin was killed %d times, hung %d times, replaced %d times; the agent was killed %d times",
				how, n.counts["created"], n.counts["refused"], n.counts["ended"], n.counts["killed"], n.counts["hung"], n.counts["replaced"], n.counts["agents killed"])
		})
	}
}

func playResourcePlugin(t *testing.T, a *trimtab, p *nicPlugin, n *nicPods) {
	t.Helper()
	must := func(nics int) string {
		t.Helper()
		name, _, err := n.run(nics)
		if err != nil {
			t.Fatal(err)
		}
		return name
	}
	name, id, err := n.run(1)
	if err != nil {
		t.Fatal(err)
	}
	checkGiven(t, a, p, n, name, id)
	for round := range 6 {
		must(0)
		second := must(1)
		must(1)
		if _, _, err := n.run(1); err == nil || !strings.Contains(err.Error(), "0 interfaces are free") {
			t.Errorf("a fourth interface: %v", err)
		}
		begin := time.Now()
		switch round % 3 {
		case 0:
			p.kill()
			n.counts["killed"]++
		case 1:
			p.signal(syscall.SIGSTOP)
			n.counts["hung"]++
		case 2:
			p.kill()
			p.start()
			p.registered(a)
			n.counts["replaced"]++
		}
		n.end(second) // released now, or when the plugin runs again
		must(0)
		if round%3 != 2 {
			if _, _, err := n.run(1); err == nil || !strings.Contains(err.Error(), "resource plugin example.com/nic") {
				t.Errorf("a container without its plugin: %v", err)
			}
			if took := time.Since(begin); took > 30*time.Second {
				t.Errorf("three pods without the plugin took %v", took)
			}
		}
		if round == 3 {
			a.kill()
			a.run()
			a.attached()
			answers(t, n.c)
			n.counts["agents killed"]++
		}
		switch round % 3 {
		case 0:
			p.start()
			p.registered(a)
		case 1:
			p.signal(syscall.SIGCONT)
		}
		p.until(a, "everything is released", func(_ string, _ bool, pending int) bool { return pending == 0 })
		for other := range n.sandboxes {
			if other != name {
				n.end(other)
			}
		}
		p.until(a, "everything is released", func(_ string, _ bool, pending int) bool { return pending == 0 })
	}
	n.end(name)
	real.Eventually(t, patiently, func() error {
		if given := p.given(); len(given) > 0 {
			return fmt.Errorf("no pod is left, and the plugin has given %v", given)
		}
		return nil
	})
}

// checkGiven checks everything that an answer sets, as the container's process sees it.
func checkGiven(t *testing.T, a *trimtab, p *nicPlugin, n *nicPods, name string, id real.ContainerID) {
	t.Helper()
	same(t, "the plugin's file", n.has[name], p.given()["00000000-0000-0000-0000-000000000001"]["app"][0])
	root := fmt.Sprintf("/proc/%d/root", n.c.ContainerPID(id))
	inside, err := os.Stat(root + "/run/nic")
	outside, errHost := os.Stat(p.mount)
	if err := errors.Join(err, errHost); err != nil || !os.SameFile(inside, outside) {
		t.Errorf("/run/nic is not the host's directory: %v", err)
	}
	var st unix.Stat_t
	if err := unix.Lstat(root+p.device, &st); err != nil || st.Rdev != unix.Mkdev(1, 5) {
		t.Errorf("the device has numbers %d:%d: %v", unix.Major(st.Rdev), unix.Minor(st.Rdev), err)
	}
	applied := map[string]string{}
	for _, v := range a.explain("shop", name, "app")[0].Values {
		if v.Why.Hook == "resourceplugin" && v.Why.Source == "example.com/nic" && v.Applied {
			applied[v.Field] = v.Value
		}
	}
	same(t, "explained", fmt.Sprint(applied["env NICS"], " ", applied["annotation example.com/nics"], " ", applied["mount /run/nic"]),
		fmt.Sprint(n.has[name], " ", n.has[name], " ", p.mount, " -> /run/nic"))
}
