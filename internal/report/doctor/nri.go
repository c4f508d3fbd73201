package doctor

import (
	"cmp"
	"fmt"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/trimtab/trimtab/internal/config"
	"github.com/trimtab/trimtab/internal/report/api"
)

// The runtimes' names, default sockets and configuration files.
const (
	containerd       = "containerd"
	crio             = "cri-o"
	containerdSocket = "/run/containerd/containerd.sock"
	crioSocket       = "/var/run/crio/crio.sock"
	containerdConfig = "/etc/containerd/config.toml"
)

// nriConfig is what a runtime's configuration says about NRI.
type nriConfig struct {
	host              host
	runtime           string             // the runtime that has this configuration
	running           bool               // the runtime runs
	socket            string             // the NRI socket to which Trimtab connects
	socketExists      bool               // the file socket exists
	anyRead           bool               // at least one configuration file could be read
	err               error              // the error of the last configuration file that could not be read
	errFile           string             // the file that could not be read because of err
	version           string             // version of containerd's configuration format
	keys              map[string]setting // keys of the NRI table; a later file overrides an earlier one
	misplacedTimeouts []setting          // timeouts in another table, where the runtime ignores them
	onKey, offKey     string             // the key that enables NRI (CRI-O), or disables it (containerd)
	table             string             // the TOML table of NRI, as messages name it
	requestKey        string             // the key of the timeout for an answer
	registerKey       string             // the key of the timeout for a registration
	// peers returns the processes that are connected to a socket; nil if the node is not this machine.
	peers func(socket string) ([]string, error)
}

// checkRuntime looks for a runtime at an endpoint, or at the runtimes' default sockets if endpoint is "". It also
// returns the name of the runtime, or "" if there is none. If sockets of several runtimes exist, runtimeInUse says
// which runtime the node uses.
func checkRuntime(c Check, h host, endpoint string, runtimeInUse func() string) (Check, string) {
	sockets := []struct{ name, path string }{{containerd, containerdSocket}, {crio, crioSocket}}
	if e := strings.TrimPrefix(endpoint, "unix://"); e != "" {
		name := containerd
		if strings.Contains(e, "crio") {
			name = crio
		}
		sockets = sockets[:1]
		sockets[0].name, sockets[0].path = name, e
	}
	var runtime string
	var found, tried []string
	var statErr error
	for _, s := range sockets {
		info, err := h.stat(s.path)
		switch {
		case err == nil && info.Mode().Type() == fs.ModeSocket:
			runtime = cmp.Or(runtime, s.name)
			found = append(found, s.name+" at "+s.path)
		case err == nil:
			return c.problem("name the runtime's socket with --runtime-endpoint", "%s is not a socket", s.path), runtime
		case !isMissing(err):
			statErr = err
		}
		tried = append(tried, s.path)
	}
	switch {
	case len(found) > 1 && runtimeInUse() != "":
		return c.ok("%s; the socket in use is %s", strings.Join(found, " and "), runtimeInUse()), runtimeInUse()
	case len(found) > 0:
		return c.ok("%s", strings.Join(found, " and ")), runtime
	case statErr != nil:
		return c.unreadable(join(tried), statErr), ""
	}
	return c.problem("start the runtime, or name its socket with --runtime-endpoint", "no socket at %s", strings.Join(tried, " or ")), ""
}

// runtimeInUse returns the name of the runtime that the node uses: the runtime to which the agent is attached, or else
// the runtime in the kubelet's configuration. It returns "" if neither the agent nor the kubelet names a runtime.
func runtimeInUse(agent *api.Node, k kubelet) string {
	if name, _ := attachedRuntime(agent); name != "" {
		return name
	}
	switch endpoint, _, err := k.endpoint(); {
	case err != nil:
	case strings.HasSuffix(endpoint, crioSocket), strings.HasSuffix(endpoint, trimVar(crioSocket)):
		return crio
	case strings.HasSuffix(endpoint, containerdSocket):
		return containerd
	}
	return ""
}

// attachedRuntime returns the runtime of an agent's working attachment: its name alone, and its name with its version.
func attachedRuntime(agent *api.Node) (name, version string) {
	for _, a := range cmp.Or(agent, &api.Node{}).Attachments {
		for _, name := range []string{containerd, crio} {
			if a.Live() && strings.HasPrefix(a.Runtime, name+" ") {
				return name, a.Runtime
			}
		}
	}
	return "", ""
}

// attachedWithoutSocket corrects the result of checkRuntime if no CRI socket is visible but an agent is attached to the
// runtime. This happens in the chart's pod with attach: nri.
func attachedWithoutSocket(c Check, runtime string, agent *api.Node) (Check, string) {
	if name, version := attachedRuntime(agent); runtime == "" && name != "" && c.Result == Problem {
		c.Do = ""
		return c.ok("%s: the agent is attached to this runtime (the CRI socket is not visible here, and the agent does not need it)", version), name
	}
	return c, runtime
}

// readNRI reads the NRI configuration of a runtime. If runtime is "", it chooses a runtime whose configuration exists.
func readNRI(h host, runtime, socket string) *nriConfig {
	n := &nriConfig{host: h, runtime: runtime, running: runtime != "", socket: socket, keys: map[string]setting{}}
	if filepath.Clean(h.root) == "/" {
		n.peers = peersOf
	}
	_, err := h.stat(socket)
	n.socketExists = err == nil
	if n.runtime == "" {
		if _, err := h.stat("/etc/crio"); err == nil {
			n.runtime = crio
		} else if _, err := h.stat(containerdConfig); !isMissing(err) {
			n.runtime = containerd
		}
	}
	if n.runtime == crio {
		n.onKey, n.table = "enable_nri", "[crio.nri]"
		n.requestKey, n.registerKey = "nri_plugin_request_timeout", "nri_plugin_registration_timeout"
		// CRI-O reads every file in this directory, whatever its suffix, in the order of their names. The later
		// file wins (CRI-O 1.36, pkg/config, UpdateFromPath).
		for _, f := range append([]string{"/etc/crio/crio.conf"}, n.host.glob("/etc/crio/crio.conf.d/*")...) {
			if info, err := n.host.stat(f); err == nil && info.IsDir() {
				continue
			}
			n.readFile(f, []string{"crio", "nri"})
		}
		return n
	}
	n.offKey, n.table = "disable", `[plugins."io.containerd.nri.v1.nri"]`
	n.requestKey, n.registerKey = "plugin_request_timeout", "plugin_registration_timeout"
	n.readImports(containerdConfig, map[string]bool{})
	return n
}

// readImports reads a containerd configuration, and then the files that it imports, which override it.
func (n *nriConfig) readImports(file string, seen map[string]bool) {
	if seen[file] {
		return
	}
	seen[file] = true
	for _, s := range n.readFile(file, []string{"plugins", "io.containerd.nri.v1.nri"}) {
		switch {
		case len(s.table) > 0:
		case s.key == "version" && n.version == "":
			n.version = s.value
		case s.key == "imports":
			for _, pattern := range s.values {
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

// readFile reads the NRI table from one file, and returns all settings of the file.
func (n *nriConfig) readFile(file string, table []string) []setting {
	data, err := n.host.read(file)
	if isMissing(err) {
		return nil
	}
	if err != nil {
		n.err, n.errFile = err, file
		return nil
	}
	n.anyRead = true
	all, err := parseTOML(file, string(data))
	if err != nil {
		n.err, n.errFile = err, file // the settings before the error are still used
	}
	for _, s := range all {
		switch {
		case slices.Equal(s.table, table):
			n.keys[s.key] = s
		case s.key == n.requestKey || s.key == n.registerKey:
			n.misplacedTimeouts = append(n.misplacedTimeouts, s)
		}
	}
	return all
}

// fileAndLine returns where the setting is, as FILE:LINE.
func (s setting) fileAndLine() string { return fmt.Sprintf("%s:%d", s.file, s.line) }

// checkNRI reports whether NRI is enabled in the runtime, and whether plugins may connect.
func checkNRI(c Check, n *nriConfig) Check {
	switchOn := fmt.Sprintf("set disable = false in %s of %s, then restart containerd; running containers are not affected", n.table, containerdConfig)
	if n.runtime == crio {
		switchOn = "set enable_nri = true in [crio.nri] of a file in /etc/crio/crio.conf.d, then restart CRI-O; running containers are not affected"
	}
	const connect, closed = "set this key to false, or let the runtime start Trimtab from its plugin directory", "enabled, but plugins may not connect"
	for _, is := range []struct {
		key, value    string
		result        Result
		do, therefore string
	}{
		{n.offKey, "true", Problem, switchOn, "off"},
		{n.onKey, "false", Problem, switchOn, "off"},
		{"disable_connections", "true", Problem, connect, closed},
		{"nri_disable_connections", "true", Problem, connect, closed},
		{n.offKey, "false", OK, "", "on"},
		{n.onKey, "true", OK, "", "on"},
	} {
		if s, ok := n.keys[is.key]; ok && is.key != "" && s.value == is.value {
			return c.withResult(is.result, is.do, "%s: %s = %s at %s", is.therefore, is.key, is.value, s.fileAndLine())
		}
	}
	switch {
	case n.socketExists:
		return c.ok("on by default: %s exists", n.socket)
	case n.err != nil:
		return c.unreadable(n.errFile, n.err)
	case n.runtime == containerd && n.version == "3":
		return c.ok("on by default: %s has version 3, which containerd 2 reads", containerdConfig)
	case n.running:
		return c.problem(switchOn, "probably off: %s is running, no configuration enables NRI (containerd 1.7 and CRI-O before 1.30 need that), and %s does not exist",
			n.runtime, n.socket)
	}
	return c.unknown("start the runtime", "no runtime is running, and no configuration mentions NRI")
}

// checkNRISocket reports whether the NRI socket exists, and whether only root can use it.
func checkNRISocket(c Check, n *nriConfig) Check {
	path := n.socket
	for _, key := range []string{"socket_path", "nri_listen"} {
		if s, ok := n.keys[key]; ok && trimVar(s.value) != trimVar(path) {
			return c.problem("set nri.socket in Trimtab's configuration to "+s.value, "the runtime listens at %s (%s), Trimtab connects to %s", s.value, s.fileAndLine(), path)
		}
	}
	info, err := n.host.stat(path)
	switch {
	case isMissing(err) && n.running:
		return c.problem(`see the result of the check "nri"; a runtime with NRI enabled creates the socket when it starts`, "%s does not exist", path)
	case isMissing(err):
		return c.unknown("start the runtime", "%s does not exist; no runtime is running", path)
	case err != nil:
		return c.unreadable(path, err)
	case info.Mode().Type() != fs.ModeSocket:
		return c.problem("remove it and restart the runtime", "%s is not a socket: %s", path, n.host.describe(info))
	}
	dir, err := n.host.stat(filepath.Dir(path))
	if err != nil {
		return c.unreadable(filepath.Dir(path), err)
	}
	found := fmt.Sprintf("%s is %s, its directory %s", path, n.host.describe(info), n.host.describe(dir))
	for _, f := range []fs.FileInfo{info, dir} {
		uid, _ := n.host.owner(f)
		if f.Mode()&0o002 != 0 || uid != 0 {
			return c.problem(fmt.Sprintf("chown root %s %s; chmod o-w both", path, filepath.Dir(path)), "users other than root can use the NRI socket: %s", found)
		}
	}
	return c.ok("%s", found)
}

// trimVar removes /var from the front of a path, because /var/run and /run are the same directory.
func trimVar(p string) string { return strings.TrimPrefix(p, "/var") }

const (
	// defaultRequestTimeout and defaultRegistrationTimeout are the defaults of containerd and CRI-O.
	defaultRequestTimeout      = 2 * time.Second
	defaultRegistrationTimeout = 5 * time.Second
	// minRequestTimeout is the shortest timeout that checkTimeouts accepts.
	minRequestTimeout = 200 * time.Millisecond
)

// checkTimeouts reports whether the runtime's timeouts for plugins are configured where the runtime reads them, and are
// long enough.
func checkTimeouts(c Check, n *nriConfig, agent *api.Node) Check {
	if len(n.misplacedTimeouts) > 0 {
		s := n.misplacedTimeouts[0]
		return c.problem(fmt.Sprintf("move it into the table %s and restart the runtime", n.table),
			"%s = %s at %s is in the table [%s], where the runtime ignores it; the timeouts in force are %s",
			s.key, s.raw, s.fileAndLine(), tableName(s.table), n.timeoutsText(agent))
	}
	inForce := attachmentWithTimeouts(agent).RequestTimeout
	if inForce == "" {
		switch {
		case n.err != nil:
			return c.unreadable(n.errFile, n.err)
		case n.runtime == "":
			return c.unknown("start the runtime and the agent", "no runtime and no runtime configuration was found")
		}
	}
	want := n.configuredTimeout(n.requestKey, defaultRequestTimeout)
	if inForce != "" && !n.anyRead { // in a container the runtime's files may be missing: only the value in force is known
		want = inForce
	}
	if inForce != "" && !sameDuration(inForce, want) {
		return c.problem("restart the runtime, so that it reads its configuration", "the runtime waits %s for an answer, but its configuration has the timeout %s", inForce, want)
	}
	if d, err := time.ParseDuration(want); err == nil && d < minRequestTimeout {
		return c.problem("increase it; the default is 2s", "%s is %s, too short for a busy node", n.requestKey, want)
	}
	return c.ok("%s", n.timeoutsText(agent))
}

// timeoutsText describes the timeouts in force, and from where doctor knows them.
func (n *nriConfig) timeoutsText(agent *api.Node) string {
	if a := attachmentWithTimeouts(agent); a.RequestTimeout != "" {
		return fmt.Sprintf("%s for an answer, %s for a registration, as the runtime reported to the agent", a.RequestTimeout, a.RegistrationTimeout)
	}
	return fmt.Sprintf("%s for an answer, %s for a registration, as configured (no agent is attached that could report the timeouts in force)",
		n.configuredTimeout(n.requestKey, defaultRequestTimeout), n.configuredTimeout(n.registerKey, defaultRegistrationTimeout))
}

// configuredTimeout returns the configured value of a timeout, or else its default.
func (n *nriConfig) configuredTimeout(key string, usual time.Duration) string {
	if s, ok := n.keys[key]; ok {
		return s.value
	}
	return usual.String()
}

// attachmentWithTimeouts returns a working attachment of the agent that reports the runtime's timeouts.
func attachmentWithTimeouts(agent *api.Node) (a api.Attachment) {
	for _, a := range cmp.Or(agent, &api.Node{}).Attachments {
		if a.RequestTimeout != "" && a.Live() {
			return a
		}
	}
	return a
}

// sameDuration reports whether two texts are equal durations.
func sameDuration(a, b string) bool {
	x, errX := time.ParseDuration(a)
	y, errY := time.ParseDuration(b)
	return errX == nil && errY == nil && x == y
}

// tableName formats the path of a TOML table.
func tableName(table []string) string {
	parts := slices.Clone(table)
	for i, p := range parts {
		if strings.Contains(p, ".") {
			parts[i] = `"` + p + `"`
		}
	}
	return strings.Join(parts, ".")
}

// pluginFileName matches the file name of a plugin that the runtime starts: two digits, a dash and a name.
var pluginFileName = regexp.MustCompile(`^[0-9]{2}-.`)

// checkPlugins reports the other NRI plugins. The runtime does not report plugins that connect by themselves, so the
// check asks the kernel for the processes that are connected to the NRI socket.
func checkPlugins(c Check, n *nriConfig, mine config.NRI) Check {
	dir := "/opt/nri/plugins"
	for _, key := range []string{"plugin_path", "nri_plugin_dir"} {
		if s, ok := n.keys[key]; ok {
			dir = s.value
		}
	}
	entries, err := n.host.list(dir)
	if err != nil && !isMissing(err) {
		return c.unreadable(dir, err)
	}
	var started []string
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || info.IsDir() || info.Mode()&0o111 == 0 {
			continue
		}
		if !pluginFileName.MatchString(e.Name()) {
			return c.problem("rename the file to NN-name, or remove it", "%s/%s is executable and not named NN-name; containerd does not start while this file exists", dir, e.Name())
		}
		if strings.HasPrefix(e.Name(), mine.Index+"-") && !strings.HasSuffix(e.Name(), "-"+mine.Name) {
			return c.problem("give this plugin another index, or set nri.index for Trimtab", "%s/%s has Trimtab's index %s", dir, e.Name(), mine.Index)
		}
		started = append(started, e.Name())
	}
	found := "the runtime starts no plugins"
	if len(started) > 0 {
		found = "the runtime starts: " + join(started)
	}
	return c.withPeers(n, mine.Cede, found)
}

// withPeers adds to a finding the processes that are connected to the NRI socket, and the fields in cede, which Trimtab
// leaves to other plugins.
func (c Check) withPeers(n *nriConfig, cede []string, found string) Check {
	const do = "look for the plugins' names in the runtime's log; use nri.cede to leave fields to other plugins"
	if n.peers == nil {
		return c.unknown(do, "%s; the runtime does not report which plugins connect by themselves", found)
	}
	peers, err := n.peers(n.socket)
	switch {
	case err != nil:
		return c.unknown(do, "%s; which plugins connect by themselves is unknown: %v", found, err)
	case len(peers) == 0:
		return c.ok("%s; no process is connected to %s", found, n.socket)
	}
	ceded := "nothing"
	if len(cede) > 0 {
		ceded = join(cede)
	}
	found = fmt.Sprintf("%s; connected: %s; Trimtab leaves %s to other plugins (nri.cede)", found, join(peers), ceded)
	if slices.ContainsFunc(peers, func(p string) bool { return !strings.HasPrefix(p, "trimtab (") }) {
		return c.unknown("run trimtab diff and create a container: it shows what each plugin sets; add the fields that other plugins set to nri.cede", "%s", found)
	}
	return c.ok("%s", found)
}
