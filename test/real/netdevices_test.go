package real_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/trimtab/trimtab/test/real"
)

// TestNetworkDevices gives network interfaces to pods of a containerd in a network namespace of its own, by the
// annotations of two of NRI's sample plugins. runc fails a container whose interface has left the host. A second
// container of the pod, and a container that is started again, must start nevertheless, and have the interface.
func TestNetworkDevices(t *testing.T) { //nolint:tparallel // the parts of the test restart one agent
	t.Parallel()
	program, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	if !real.WithOwnNetwork(t, builtBinary+"="+program) {
		return
	}
	c := real.Start(t)
	c.AddNetwork()
	a := newTrimtab(t)
	a.sys = ownSys(t)
	a.configure(c, `authorization: [{kinds: [network-devices], namespaces: [default], decision: allow, mostCPUs: 0}]
hooks: {networkDevices: {enabled: true, allowed: ["tt*"]}}
`)
	a.run()
	a.attached()
	for _, key := range []string{"netdevice.noderesource.dev", "netdevices.nri.containerd.io/pod", "network-devices.noderesource.dev/pod"} {
		t.Run(key, func(t *testing.T) {
			c := c.For(t)
			link, format := fmt.Sprintf("tt%d", len(key)), "[{name: %s, new_name: net0, mtu: 1400}]"
			if strings.HasPrefix(key, "network-") {
				format = "[{hostIf: %s, name: net0}]"
			}
			must(t, exec.CommandContext(t.Context(), "ip", "link", "add", link, "type", "veth", "peer", "name", link+"p"))
			pod := c.RunPod(real.PodSpec{Name: link, OwnNetwork: true, Annotations: map[string]string{key: fmt.Sprintf(format, link)}})
			first := c.RunContainer(pod, real.ContainerSpec{Name: "first"})
			hasNet0(t, c, first, true)
			if slices.Contains(interfaces(t, os.Getpid()), link) {
				t.Error("the interface is still on the host")
			}
			hasNet0(t, c, c.RunContainer(pod, real.ContainerSpec{Name: "second"}), true)

			c.StopContainer(first)
			c.RemoveContainer(first)
			again := c.RunContainer(pod, real.ContainerSpec{Name: "first", Attempt: 1})
			hasNet0(t, c, again, true)

			// The restarted agent knows what the containers were created without.
			a.kill()
			a.run()
			a.attached()
			for _, name := range []string{"first", "second"} {
				moved(t, a, link, name, false)
			}
		})
	}

	t.Run("nobody has it", func(t *testing.T) {
		c := c.For(t)
		pod := c.RunPod(real.PodSpec{Name: "none", OwnNetwork: true, Annotations: map[string]string{"netdevice.noderesource.dev": "- {name: ttnone}"}})
		hasNet0(t, c, c.RunContainer(pod, real.ContainerSpec{Name: "main"}), false)
		moved(t, a, "none", "main", true)
	})
}

// ownSys mounts a sysfs with the interfaces of this process's network namespace.
func ownSys(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := syscall.Mount("sysfs", dir, "sysfs", syscall.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

func must(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", cmd, err, out)
	}
}

// interfaces lists the interfaces in a process's network namespace.
func interfaces(t *testing.T, pid int) (names []string) {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/dev", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if name, _, is := strings.Cut(strings.TrimSpace(line), ":"); is {
			names = append(names, name)
		}
	}
	return names
}

func hasNet0(t *testing.T, c *real.Containerd, id real.ContainerID, want bool) {
	t.Helper()
	if all := interfaces(t, c.ContainerPID(id)); slices.Contains(all, "net0") != want {
		t.Errorf("the container has %v; net0 among them: want %v", all, want)
	}
}

// moved waits until the agent explains a container that was created without an interface, and whether it reports that
// as a problem.
func moved(t *testing.T, a *trimtab, pod, container string, reported bool) {
	t.Helper()
	real.Eventually(t, time.Minute, func() error {
		found, err := a.explained("default", pod, container)
		if err != nil || len(found) != 1 {
			return errors.Join(err, fmt.Errorf("%d containers are explained", len(found)))
		}
		for _, v := range found[0].Values {
			if strings.HasPrefix(v.Field, "net.device") {
				return fmt.Errorf("%s is decided", v.Field)
			}
		}
		if has := len(found[0].Problems) > 0; has != reported {
			return fmt.Errorf("problems %+v", found[0].Problems)
		}
		return nil
	})
}
