package real_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/trimtab/trimtab/test/pages"
	"github.com/trimtab/trimtab/test/real"
)

// demo is a page of docs/demos whose commands run on a node with a real containerd. They run in the sandbox
// of test/pages. kubectl and systemctl are scripts that ask the test, which stands in for the API server,
// the kubelet and systemd.
type demo struct {
	t    *testing.T
	c    *real.Containerd
	a    *trimtab
	dir  string
	pods map[string]real.PodID
	ctrs map[string]real.ContainerID // by "namespace/pod/container"
}

// TestDemos runs the pages of docs/demos on a containerd, and compares the output with the pages. TestPages
// of test/pages runs their other commands on the embedded runtime.
func TestDemos(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../../docs/demos/*.md")
	if err != nil || len(files) == 0 {
		t.Fatalf("no demos: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".md"), func(t *testing.T) {
			t.Parallel()
			page, err := pages.Read("../..", filepath.Join("docs/demos", filepath.Base(file)))
			if err != nil {
				t.Fatal(err)
			}
			newDemo(t, strings.TrimSuffix(filepath.Base(file), ".md")).follow(page)
		})
	}
}

func newDemo(t *testing.T, name string) *demo {
	t.Helper()
	dir, err := os.MkdirTemp("", "demo")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	var off []real.Option
	if name == "enable-nri" {
		off = append(off, real.WithoutNRI())
	}
	return &demo{t: t, c: real.Start(t, off...), a: newTrimtab(t), dir: dir, pods: map[string]real.PodID{}, ctrs: map[string]real.ContainerID{}}
}

// follow runs those commands of a page that belong to this test.
func (d *demo) follow(page *pages.Page) {
	d.t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		d.t.Fatal(err)
	}
	bin := filepath.Join(d.dir, "bin")
	box, err := pages.NewSandbox(filepath.Join(d.dir, "box"), root, bin)
	if err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(box.Close)
	if err := os.Mkdir(bin, 0o755); err != nil { //nolint:gosec // a directory of programs
		d.t.Fatal(err)
	}
	if err := os.Symlink(d.a.path, filepath.Join(bin, "trimtab")); err != nil {
		d.t.Fatal(err)
	}
	d.serve(bin)
	ran := 0
	for _, b := range page.Blocks {
		if by, _ := b.Value("by"); by != "test/real.TestDemos" {
			continue
		}
		if err := box.Run(d.t.Context(), b); err != nil {
			d.t.Errorf("%s:%d: %v", page.File, b.Line, err)
		}
		ran++
	}
	if ran == 0 {
		d.t.Errorf("%s has no commands for a node with containerd", page.File)
	}
}

// serve makes the scripts that ask the test, and answers them.
func (d *demo) serve(bin string) {
	d.t.Helper()
	socket := filepath.Join(d.dir, "ask")
	l, err := net.Listen("unix", socket)
	if err != nil {
		d.t.Fatal(err)
	}
	for _, name := range []string{"kubectl", "systemctl"} {
		script := fmt.Sprintf("#!/bin/sh\nprintf '%%s\\n' \"$PWD\" \"$@\" | curl -sS --fail-with-body --unix-socket %s --data-binary @- http://test/%s\n", socket, name)
		if err := os.WriteFile(filepath.Join(bin, name), []byte(script), 0o755); err != nil { //nolint:gosec // a program
			d.t.Fatal(err)
		}
	}
	mux := http.NewServeMux()
	for path, answer := range map[string]func(dir string, args []string) (string, error){"/kubectl": d.kubectl, "/systemctl": d.systemctl} {
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			text, err := io.ReadAll(r.Body)
			lines := strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
			out := ""
			if err == nil {
				out, err = answer(lines[0], lines[1:])
			}
			if err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
				return
			}
			_, _ = io.WriteString(w, out)
		})
	}
	server := &http.Server{Handler: mux, ReadHeaderTimeout: patiently}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(l)
	}()
	d.t.Cleanup(func() { _ = server.Close(); <-done })
}

// kubectl does what a cluster would do on this node.
func (d *demo) kubectl(dir string, args []string) (string, error) {
	switch {
	case len(args) == 3 && args[0] == "create" && args[1] == "namespace":
		return "namespace/" + args[2] + " created\n", nil
	case len(args) == 3 && args[1] == "-f":
		text, err := os.ReadFile(filepath.Join(dir, args[2]))
		if err != nil {
			return "", err
		}
		var pod manifest
		if err := yaml.Unmarshal(text, &pod); err != nil {
			return "", err
		}
		if args[0] == "delete" {
			d.c.RemovePod(d.pods[pod.name()])
			return "pod \"" + pod.Metadata.Name + "\" deleted\n", nil
		}
		return "pod/" + pod.Metadata.Name + " created\n", d.create(pod)
	case len(args) > 7 && args[0] == "exec" && args[1] == "-n" && args[4] == "-c" && args[6] == "--":
		return d.exec(args[2]+"/"+args[3]+"/"+args[5], args[7:])
	}
	return "", fmt.Errorf("the test knows no kubectl %q", args)
}

// manifest is a pod in the form of the pages.
type manifest struct {
	Metadata struct {
		Name, Namespace string
		Annotations     map[string]string
	}
	Spec struct {
		Containers []struct {
			Name    string
			Command []string
		}
	}
}

func (m manifest) name() string { return m.Metadata.Namespace + "/" + m.Metadata.Name }

// create runs a pod. Its containers run the probe in place of their images.
func (d *demo) create(m manifest) error {
	pod, err := d.c.TryRunPod(real.PodSpec{Namespace: m.Metadata.Namespace, Name: m.Metadata.Name, Annotations: m.Metadata.Annotations})
	if err != nil {
		return err
	}
	d.pods[m.name()] = pod
	for _, k := range m.Spec.Containers {
		id, err := d.c.TryCreateContainer(pod, real.ContainerSpec{Name: k.Name})
		if err != nil {
			return err
		}
		if err := d.c.TryStartContainer(id); err != nil {
			return err
		}
		d.ctrs[m.name()+"/"+k.Name] = id
	}
	return nil
}

// exec runs a program of the host on a path in a container, which is the last argument: the probe's image
// has no programs.
func (d *demo) exec(container string, args []string) (string, error) {
	root := fmt.Sprintf("/proc/%d/root", d.c.ContainerPID(d.ctrs[container]))
	args = slices.Clone(args)
	args[len(args)-1] = root + args[len(args)-1]
	out, err := exec.CommandContext(d.t.Context(), args[0], args[1:]...).CombinedOutput() //nolint:gosec // the page's commands
	text := strings.ReplaceAll(string(out), root, "")
	if err != nil {
		return "", fmt.Errorf("%s%w", text, err)
	}
	return text, nil
}

// systemctl starts the agent with the page's configuration, and restarts containerd with NRI on.
func (d *demo) systemctl(dir string, args []string) (string, error) {
	node := filepath.Dir(dir) // the sandbox has the node's directories beside the checkout
	switch strings.Join(args, " ") {
	case "restart containerd":
		d.c.RestartWithNRI(true)
		at := filepath.Join(node, "var/run/nri")
		return "", errors.Join(os.MkdirAll(at, 0o755), os.Symlink(d.c.NRISocket(), filepath.Join(at, "nri.sock"))) //nolint:gosec // a test's
	case "restart trimtab-nri":
		file := filepath.Join(node, "etc/trimtab/config.yaml")
		text, err := os.ReadFile(file)
		if err != nil {
			return "", err
		}
		page := strings.Replace(string(text), "apiVersion: trimtab.io/v1alpha1\nkind: Config\n", "", 1)
		d.a.configure(d.c, page)
		d.a.run()
		d.a.attached()
		return "", os.WriteFile(file, d.a.text(d.c, page), 0o600)
	}
	return "", fmt.Errorf("the test knows no systemctl %q", args)
}
