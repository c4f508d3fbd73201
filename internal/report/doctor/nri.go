package doctor

import (
	"fmt"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/trimtab/trimtab/internal/report/api"
)

// Where runtimes are.
const (
	containerd       = "containerd"
	crio             = "cri-o"
	containerdSocket = "/run/containerd/containerd.sock"
	crioSocket       = "/var/run/crio/crio.sock"
	containerdConfig = "/etc/containerd/config.toml"
)

// nriConfig is what a runtime's configuration says of NRI.
type nriConfig struct {
	files    []string // read
	err      error    // of one that could not be
	errFile  string
	version  string             // of a containerd configuration's shape
	keys     map[string]setting // of the NRI table; the last file wins
	stray    []setting          // timeouts in another table, where they are ignored
	on, off  string             // the key that switches, whichever the runtime has
	table    string             // its name, for people
	requests string             // key names of the timeouts
	register string
}

func (n *node) checkRuntime() Check {
	c := Check{Name: "runtime", Why: "Trimtab works through a container runtime; without one there is nothing to attach to"}
	sockets := []struct{ name, path string }{{containerd, containerdSocket}, {crio, crioSocket}}
	if e := strings.TrimPrefix(n.endpoint(), "unix://"); e != "" {
		name := containerd
		if strings.Contains(e, "crio") {
			name = crio
		}
		sockets = sockets[:1]
		sockets[0].name, sockets[0].path = name, e
	}
	var found, tried []string
	var unseen error
	for _, s := range sockets {
		info, err := n.host.stat(s.path)
		switch {
		case err == nil && info.Mode().Type() == fs.ModeSocket:
			if n.runtime == "" {
				n.runtime, n.running = s.name, true
			}
			found = append(found, s.name+" at "+s.path)
		case err == nil:
			return c.problem("name the runtime's socket with --runtime-endpoint", "%s is no socket", s.path)
		case !missing(err):
			unseen = err
		}
		tried = append(tried, s.path)
	}
	switch {
	case len(found) > 1 && n.inUse() != "":
		n.runtime = n.inUse()
		return c.ok("%s; in use is %s", strings.Join(found, " and "), n.runtime)
	case len(found) > 0:
		return c.ok("%s", strings.Join(found, " and "))
	case unseen != nil:
		return c.unseen(join(tried), unseen)
	}
	return c.problem("start the runtime, or name its socket with --runtime-endpoint", "no socket at %s", strings.Join(tried, " or "))
}

// inUse names the runtime that the agent says it is attached to: sockets of another
// may be there beside it. Where no agent does, the kubelet's configuration tells;
// it is empty where neither does.
func (n *node) inUse() string {
	var attached []api.Attached
	if n.agent != nil {
		attached = n.agent.Attachments
	}
	for _, a := range attached {
		for _, name := range []string{containerd, crio} {
			if live(a.State) && strings.HasPrefix(a.Runtime, name+" ") {
				return name
			}
		}
	}
	switch endpoint, _, err := n.kubeletEndpoint(); {
	case err != nil:
	case strings.HasSuffix(endpoint, crioSocket), strings.HasSuffix(endpoint, sameRun(crioSocket)):
		return crio
	case strings.HasSuffix(endpoint, containerdSocket):
		return containerd
	}
	return ""
}

// readNRI reads the runtime's configuration. Where no runtime was found, the
// one that has a configuration is meant.
func (n *node) readNRI() {
	if n.runtime == "" {
		if _, err := n.host.stat("/etc/crio"); err == nil {
			n.runtime = crio
		} else if _, err := n.host.stat(containerdConfig); !missing(err) {
			n.runtime = containerd
		}
	}
	n.nri.keys = map[string]setting{}
	if n.runtime == crio {
		n.nri.on, n.nri.table = "enable_nri", "[crio.nri]"
		n.nri.requests, n.nri.register = "nri_plugin_request_timeout", "nri_plugin_registration_timeout"
		// CRI-O reads every file there, whatever its name ends with, in the order of
		// their names: the later wins (CRI-O 1.36, pkg/config, UpdateFromPath).
		files := n.host.glob("/etc/crio/crio.conf.d/*")
		slices.Sort(files)
		for _, f := range append([]string{"/etc/crio/crio.conf"}, files...) {
			if info, err := n.host.stat(f); err == nil && info.IsDir() {
				continue
			}
			n.readFile(f, []string{"crio", "nri"})
		}
		return
	}
	n.nri.off, n.nri.table = "disable", `[plugins."io.containerd.nri.v1.nri"]`
	n.nri.requests, n.nri.register = "plugin_request_timeout", "plugin_registration_timeout"
	n.readImports(containerdConfig, map[string]bool{})
}

// readImports reads a containerd configuration and then what it imports, which
// stands above it.
func (n *node) readImports(file string, seen map[string]bool) {
	if seen[file] {
		return
	}
	seen[file] = true
	for _, s := range n.readFile(file, []string{"plugins", "io.containerd.nri.v1.nri"}) {
		switch {
		case len(s.table) > 0:
		case s.key == "version" && n.nri.version == "":
			n.nri.version = s.text()
		case s.key == "imports":
			for _, pattern := range s.texts() {
				if !filepath.IsAbs(pattern) {
					pattern = filepath.Join(filepath.Dir(file), pattern)
				}
				for _, f := range n.host.glob(pattern) {
					n.readImports(f, seen)
				}
			}
		}
	}
}

// readFile takes the NRI table out of one file and returns all of the file.
func (n *node) readFile(file string, table []string) []setting {
	data, err := n.host.read(file)
	if missing(err) {
		return nil
	}
	if err != nil {
		n.nri.err, n.nri.errFile = err, file
		return nil
	}
	n.nri.files = append(n.nri.files, file)
	all := parseTOML(file, string(data))
	for _, s := range all {
		switch {
		case slices.Equal(s.table, table):
			n.nri.keys[s.key] = s
		case s.key == n.nri.requests || s.key == n.nri.register:
			n.nri.stray = append(n.nri.stray, s)
		}
	}
	return all
}

func (s setting) where() string { return fmt.Sprintf("%s:%d", s.file, s.line) }

func (n *node) checkNRI() Check {
	c := Check{Name: "nri", Why: "Trimtab attaches through NRI; a runtime that has it off starts every pod without it"}
	_, err := n.host.stat(n.config.NRI.Socket)
	n.nriSocket = err == nil
	said := func(key, value string) (setting, bool) {
		s, ok := n.nri.keys[key]
		return s, ok && key != "" && s.text() == value
	}
	switchOn := fmt.Sprintf("set disable = false in %s of %s, then restart containerd; running containers stay", n.nri.table, containerdConfig)
	if n.runtime == crio {
		switchOn = "set enable_nri = true in [crio.nri] of a file in /etc/crio/crio.conf.d, then restart CRI-O; running containers stay"
	}
	if s, off := said(n.nri.off, "true"); off {
		return c.problem(switchOn, "off: disable = true at %s", s.where())
	}
	if s, off := said(n.nri.on, "false"); off {
		return c.problem(switchOn, "off: enable_nri = false at %s", s.where())
	}
	for _, key := range []string{"disable_connections", "nri_disable_connections"} {
		if s, off := said(key, "true"); off {
			return c.problem("set it to false, or let the runtime start Trimtab from its plugin directory",
				"on, but plugins may not connect: %s = true at %s", key, s.where())
		}
	}
	if s, on := said(n.nri.off, "false"); on {
		return c.ok("on: disable = false at %s", s.where())
	}
	if s, on := said(n.nri.on, "true"); on {
		return c.ok("on: enable_nri = true at %s", s.where())
	}
	switch {
	case n.nriSocket:
		return c.ok("on by default: %s is there", n.config.NRI.Socket)
	case n.nri.err != nil:
		return c.unseen(n.nri.errFile, n.nri.err)
	case n.runtime == containerd && n.nri.version == "3":
		return c.ok("on by default: %s has version 3, which containerd 2 reads", containerdConfig)
	case n.running:
		return c.problem(switchOn, "off, it seems: %s is running, no configuration switches NRI on (containerd 1.7 and CRI-O before 1.30 need that), and there is no %s",
			n.runtime, n.config.NRI.Socket)
	}
	return c.unknown("start the runtime", "no runtime is running and no configuration speaks of NRI")
}

func (n *node) checkNRISocket() Check {
	path := n.config.NRI.Socket
	c := Check{Name: "nri socket", Why: "Trimtab connects there, and whoever else can connect there can change every container of the node"}
	for _, key := range []string{"socket_path", "nri_listen"} {
		if s, ok := n.nri.keys[key]; ok && sameRun(s.text()) != sameRun(path) {
			return c.problem("set nri.socket in Trimtab's configuration to "+s.text(), "the runtime listens at %s (%s), Trimtab connects to %s", s.text(), s.where(), path)
		}
	}
	info, err := n.host.stat(path)
	switch {
	case missing(err) && n.running:
		return c.problem("see the check nri; a runtime that has NRI on makes it when it starts", "%s is not there", path)
	case missing(err):
		return c.unknown("start the runtime", "%s is not there; no runtime is running", path)
	case err != nil:
		return c.unseen(path, err)
	case info.Mode().Type() != fs.ModeSocket:
		return c.problem("remove it and restart the runtime", "%s is no socket: %s", path, n.describe(info))
	}
	dir, err := n.host.stat(filepath.Dir(path))
	if err != nil {
		return c.unseen(filepath.Dir(path), err)
	}
	found := fmt.Sprintf("%s is %s, its directory %s", path, n.describe(info), n.describe(dir))
	for _, f := range []fs.FileInfo{info, dir} {
		uid, _ := n.o.owner(f)
		if f.Mode()&0o002 != 0 || uid != 0 {
			return c.problem(fmt.Sprintf("chown root %s %s; chmod o-w both", path, filepath.Dir(path)), "not for root alone: %s", found)
		}
	}
	return c.ok("%s", found)
}

// sameRun makes one of the two names of a node's /run.
func sameRun(p string) string { return strings.TrimPrefix(p, "/var") }

// The runtimes' defaults.
const (
	defaultRequest  = 2 * time.Second
	defaultRegister = 5 * time.Second
	tooShort        = 200 * time.Millisecond
)

func (n *node) checkTimeouts() Check {
	c := Check{Name: "nri timeouts", Why: "a plugin that answers later is dropped, and the pod starts without it"}
	if len(n.nri.stray) > 0 {
		s := n.nri.stray[0]
		return c.problem(fmt.Sprintf("move it into the table %s and restart the runtime", n.nri.table),
			"%s = %s at %s is in the table [%s], where the runtime ignores it; in force is %s",
			s.key, s.value, s.where(), tableName(s.table), n.inForce())
	}
	if n.told() == "" {
		switch {
		case n.nri.err != nil:
			return c.unseen(n.nri.errFile, n.nri.err)
		case n.runtime == "":
			return c.unknown("start the runtime and the agent", "no runtime and no configuration of one was found")
		}
	}
	want := n.configured(n.nri.requests, defaultRequest)
	if told := n.told(); told != "" && !same(told, want) {
		return c.problem("restart the runtime, so that it reads its configuration", "the runtime waits %s for an answer, its configuration says %s", told, want)
	}
	if d, err := time.ParseDuration(want); err == nil && d < tooShort {
		return c.problem("raise it; the default is 2s", "%s is %s, too short for a busy node", n.nri.requests, want)
	}
	return c.ok("%s", n.inForce())
}

// inForce says which timeouts hold, and who says so.
func (n *node) inForce() string {
	if told := n.told(); told != "" {
		for _, a := range n.agent.Attachments {
			if a.RequestTimeout == told {
				return fmt.Sprintf("%s for an answer, %s for a registration, as the runtime told the agent", a.RequestTimeout, a.RegistrationTimeout)
			}
		}
	}
	return fmt.Sprintf("%s for an answer, %s for a registration, as configured (no agent is attached that could tell)",
		n.configured(n.nri.requests, defaultRequest), n.configured(n.nri.register, defaultRegister))
}

func (n *node) configured(key string, other time.Duration) string {
	if s, ok := n.nri.keys[key]; ok {
		return s.text()
	}
	return other.String()
}

// told is what the runtime told the agent; "" for nothing.
func (n *node) told() string {
	if n.agent == nil {
		return ""
	}
	for _, a := range n.agent.Attachments {
		if a.RequestTimeout != "" && live(a.State) {
			return a.RequestTimeout
		}
	}
	return ""
}

// live reports whether an attachment's state is one in which it works.
func live(state string) bool { return state == "connected" || state == "synchronised" }

func same(a, b string) bool {
	x, errX := time.ParseDuration(a)
	y, errY := time.ParseDuration(b)
	return errX == nil && errY == nil && x == y
}

func tableName(table []string) string {
	parts := slices.Clone(table)
	for i, p := range parts {
		if strings.Contains(p, ".") {
			parts[i] = `"` + p + `"`
		}
	}
	return strings.Join(parts, ".")
}

var pluginName = regexp.MustCompile(`^[0-9]{2}-.`)

// checkPlugins looks for the other plugins. Those that connect by themselves
// only the runtime knows.
func (n *node) checkPlugins() Check {
	c := Check{Name: "other nri plugins", Why: "two plugins that set the same value of a container fail its creation; of two with one index nobody knows which comes first"}
	dir := "/opt/nri/plugins"
	for _, key := range []string{"plugin_path", "nri_plugin_dir"} {
		if s, ok := n.nri.keys[key]; ok {
			dir = s.text()
		}
	}
	entries, err := n.host.list(dir)
	if err != nil && !missing(err) {
		return c.unseen(dir, err)
	}
	var started []string
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || info.IsDir() || info.Mode()&0o111 == 0 {
			continue
		}
		if !pluginName.MatchString(e.Name()) {
			return c.problem("rename it to NN-name, or take it away", "%s/%s is executable and not named NN-name; containerd does not start with it", dir, e.Name())
		}
		if strings.HasPrefix(e.Name(), n.config.NRI.Index+"-") && !strings.HasSuffix(e.Name(), "-"+n.config.NRI.Name) {
			return c.problem("give one of them another index", "%s/%s has Trimtab's index %s", dir, e.Name(), n.config.NRI.Index)
		}
		started = append(started, e.Name())
	}
	found := "none are started by the runtime"
	if len(started) > 0 {
		found = "started by the runtime: " + join(started)
	}
	return c.unknown("look for the plugins' names in the runtime's log; give up fields that others own with nri.cede",
		"%s; which others connect by themselves, the runtime does not tell", found)
}
