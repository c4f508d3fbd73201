package real_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/api"
	"golang.org/x/sys/unix"

	"github.com/trimtab/trimtab/test/real"
)

// adjusted is a container that a plugin has adjusted, and its state on the host.
type adjusted struct {
	t   *testing.T
	c   *real.Containerd
	id  real.ContainerID
	pid int
	dir string // a directory that the test gave the plugin
}

func (a *adjusted) proc(file string) string { return fmt.Sprintf("/proc/%d/%s", a.pid, file) }

// file is a file's text, or its error.
func (a *adjusted) file(path string) string {
	text, err := os.ReadFile(path) //nolint:gosec // a test's paths
	if err != nil {
		return errors.Unwrap(err).Error()
	}
	return strings.TrimSpace(string(text))
}

// kernel reads a file of the container's cgroup, if the host has its controller.
func kernel(file string) func(*adjusted) string {
	return func(a *adjusted) string {
		controller, _, _ := strings.Cut(file, ".")
		dir, ok := a.c.CgroupDirs(a.id)[controller]
		if !ok {
			return "no controller"
		}
		return strings.Join(strings.Fields(a.file(filepath.Join(dir, file))), " ")
	}
}

// limit returns a line of the process's limits: soft and hard.
func limit(name string) func(*adjusted) string {
	return func(a *adjusted) string {
		for line := range strings.Lines(a.file(a.proc("limits"))) {
			if rest, ok := strings.CutPrefix(line, name); ok {
				return strings.Join(strings.Fields(rest)[:2], " ")
			}
		}
		return "no such limit"
	}
}

// mounted returns the type and options of a mount of the container, or "not mounted".
func mounted(at string) func(*adjusted) string {
	return func(a *adjusted) string {
		for line := range strings.Lines(a.file(a.proc("mountinfo"))) {
			if f := strings.Fields(line); f[4] == at {
				_, kind, _ := strings.Cut(line, " - ")
				return strings.Fields(kind)[0] + " " + f[5]
			}
		}
		return "not mounted"
	}
}

// device describes a device node of the container: its type, numbers, permissions and owner.
func device(path string) func(*adjusted) string {
	return func(a *adjusted) string {
		var s unix.Stat_t
		if err := unix.Stat(a.proc("root"+path), &s); err != nil {
			return err.Error()
		}
		return fmt.Sprintf("%o %d:%d %d:%d", s.Mode, unix.Major(s.Rdev), unix.Minor(s.Rdev), s.Uid, s.Gid)
	}
}

// told returns the output of a host program about the process.
func told(program string, args ...string) func(*adjusted) string {
	return func(a *adjusted) string {
		full := make([]string, len(args))
		for i, arg := range args {
			full[i] = strings.ReplaceAll(arg, "PID", fmt.Sprint(a.pid))
		}
		out, err := exec.CommandContext(a.t.Context(), program, full...).CombinedOutput() //nolint:gosec // programs of the test's
		if err != nil {
			return fmt.Sprintf("%s: %v", out, err)
		}
		return strings.Join(strings.Fields(strings.ReplaceAll(string(out), fmt.Sprint(a.pid), "PID")), " ")
	}
}

// hooked waits for the file that a hook writes, with the name of its stage.
func hooked(a *adjusted) string {
	var text string
	real.Eventually(a.t, patiently, func() (err error) {
		b, err := os.ReadFile(filepath.Join(a.dir, "hooked"))
		text = strings.TrimSpace(string(b))
		return err
	})
	return text
}

// variable returns a variable of the container's process.
func variable(name string) func(*adjusted) string {
	return func(a *adjusted) string {
		for pair := range strings.SplitSeq(a.file(a.proc("environ")), "\x00") {
			if value, ok := strings.CutPrefix(pair, name+"="); ok {
				return value
			}
		}
		return "not set"
	}
}

// annotation returns an annotation of the container's OCI spec.
func annotation(name string) func(*adjusted) string {
	return func(a *adjusted) string {
		if v, ok := spec(a.t, a.c, a.id).Annotations[name]; ok {
			return v
		}
		return "not set"
	}
}

// fieldOutcome is the result for a field of a plugin's answer.
type fieldOutcome string

const (
	applied   fieldOutcome = "applied"   // the container has the value
	dropped   fieldOutcome = "dropped"   // the container is as without the plugin, and no error was reported
	refused   fieldOutcome = "refused"   // the container was not created or not started, and the error says why
	passed    fieldOutcome = "passed"    // the OCI runtime got the value, but this host does not support it
	otherwise fieldOutcome = "otherwise" // none of these, such as a value that changed together with another field
)

// setting makes a plugin's answer about a container.
type setting struct {
	*api.ContainerAdjustment
	about *api.Container
	dir   string // a directory of the test, for files
}

// fieldRow is a field of NRI's answer: how a plugin sets it, and how to observe the result.
type fieldRow struct {
	field string
	set   func(s *setting)
	see   func(*adjusted) string
	want  string // the text that see returns if the field was applied
}

// playFields makes a plugin set one field per container, and returns the result for each.
func playFields(t *testing.T, c *real.Containerd, socket string, rows []fieldRow) map[string]fieldOutcome {
	t.Helper()
	dirs := map[string]string{}
	p := newPlugin(t)
	p.create = func(_ *api.PodSandbox, k *api.Container) (*api.ContainerAdjustment, []*api.ContainerUpdate, error) {
		for i, r := range rows {
			if name := fmt.Sprintf("field-%d", i); k.GetName() == name {
				s := &setting{&api.ContainerAdjustment{}, k, dirs[name]}
				r.set(s)
				return s.ContainerAdjustment, nil, nil
			}
		}
		return nil, nil, nil
	}
	for i := range rows {
		dirs[fmt.Sprintf("field-%d", i)] = t.TempDir()
	}
	p.connect(socket, "fields", "10")
	pod := c.RunPod(plain("fields", ""))
	found := map[string]fieldOutcome{}
	for i, r := range rows {
		name := fmt.Sprintf("field-%d", i)
		base := see(t, c, pod, r, ctrOf(name+"-plain"), dirs[name])
		got := see(t, c, pod, r, ctrOf(name), dirs[name])
		switch {
		case strings.Contains(got, "OCI runtime create failed"):
			found[r.field] = passed
		case strings.HasPrefix(got, "error: "):
			found[r.field] = refused
		case got == r.want:
			found[r.field] = applied
		case got == base:
			found[r.field] = dropped
		default:
			found[r.field] = otherwise
		}
		t.Logf("%s: %s: without %q, with %q", r.field, found[r.field], base, got)
	}
	return found
}

func ctrOf(name string) real.ContainerSpec {
	return real.ContainerSpec{Name: name, Annotations: map[string]string{"plugin.example/old": "x"}, Env: map[string]string{"OLD": "x"}, Devices: map[string]string{"/dev/old": "/dev/full"}}
}

// see runs a container and returns what it observes, or the error of its creation or start.
func see(t *testing.T, c *real.Containerd, pod real.PodID, r fieldRow, k real.ContainerSpec, dir string) string {
	t.Helper()
	id, err := c.TryCreateContainer(pod, k)
	if err != nil {
		return "error: " + err.Error()
	}
	defer c.RemoveContainer(id)
	if err := c.TryStartContainer(id); err != nil {
		return "error: " + err.Error()
	}
	if strings.HasPrefix(r.field, "hooks") && strings.HasSuffix(k.Name, "-plain") {
		return "no hook"
	}
	c.FirstView(id)
	return r.see(&adjusted{t, c, id, c.ContainerPID(id), dir})
}

// TestHostedEveryField makes a plugin set each field of NRI, one per container, with containerd's own NRI
// and with our host, and compares the results with the table of docs/nri-fields.md. A field that our host
// applies has the same result as with containerd, unless containerd does not apply it.
func TestHostedEveryField(t *testing.T) {
	t.Parallel()
	needTwoCPUs(t)
	sides := []struct {
		name  string
		start func(t *testing.T) (*real.Containerd, string)
	}{
		{"containerd", func(t *testing.T) (*real.Containerd, string) {
			t.Helper()
			c := real.Start(t)
			return c, c.NRISocket()
		}},
		{"host", func(t *testing.T) (*real.Containerd, string) {
			t.Helper()
			decisions := filepath.Join(t.TempDir(), "oci")
			c := real.Start(t, real.WithoutNRI(), wrapperHandler(t, decisions))
			a := newTrimtab(t)
			a.configure(c, fmt.Sprintf(`attach: cri
cri: {endpoint: "unix://%s", socket: %s, ociWrapper: {enabled: true, directory: %s}}
nriHost: {enabled: true, socket: %s, pluginRequestTimeoutMilliseconds: 10000}
`, c.Socket(), a.proxy(), decisions, a.nri()))
			a.run()
			a.attached()
			c.Through(a.proxy())
			answers(t, c)
			return c, a.nri()
		}},
	}
	want := fieldTable(t)
	for column, side := range sides {
		t.Run(side.name, func(t *testing.T) {
			t.Parallel()
			start := time.Now()
			c, socket := side.start(t)
			needV1(t, c)
			rows := everyField(t, c)
			found := playFields(t, c, socket, rows)
			for _, r := range rows {
				row, ok := want[r.field]
				if !ok {
					t.Errorf("docs/nri-fields.md has no row for %s", r.field)
				} else if row[column] != found[r.field] {
					t.Errorf("%s was %s, and docs/nri-fields.md has %q for %s", r.field, found[r.field], row[column], side.name)
				}
			}
			if len(rows) != len(want) {
				t.Errorf("%d fields were played, and docs/nri-fields.md has %d", len(rows), len(want))
			}
			t.Logf("%d fields in %v", len(rows), time.Since(start))
		})
	}
}

// fieldTable reads the results in docs/nri-fields.md: for each field with containerd's own NRI, and with
// our host.
func fieldTable(t *testing.T) map[string][2]fieldOutcome {
	t.Helper()
	text, err := os.ReadFile("../../docs/nri-fields.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string][2]fieldOutcome{}
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(line, "|")
		if len(cells) < 5 || !strings.HasPrefix(strings.TrimSpace(cells[1]), "`") {
			continue
		}
		var out [2]fieldOutcome
		for i := range out {
			word, _, _ := strings.Cut(strings.TrimSpace(cells[i+2]), " ")
			out[i] = fieldOutcome(word)
		}
		rows[strings.Trim(strings.TrimSpace(cells[1]), "`")] = out
	}
	return rows
}
