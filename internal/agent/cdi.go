package agent

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/trimtab/trimtab/internal/cdispec"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/report/logkey"
)

// cdiSpecs reads the devices in the node's CDI specifications. It parses the files again only after a file has changed.
type cdiSpecs struct {
	dirs []string // paths.cdi: the directories with CDI specifications
	log  *slog.Logger
	host *lifecycle.Host // the host of a simulated node: its devices replace the devices of the files; nil on a real node

	mu          sync.Mutex             // guards all below
	fingerprint string                 // the names, sizes and times of the files when they were read last
	specDevices []cdispec.Device       // the devices in the files
	nodeDevices []lifecycle.NodeDevice // the names and device nodes of specDevices
	faults      []cdispec.Fault        // the logged faults of the files
}

// cdiSpecsOf makes the cdiSpecs of an agent with these options. It reads no files.
func cdiSpecsOf(o Options) *cdiSpecs {
	return &cdiSpecs{dirs: o.Config.Paths.CDI, log: o.Log, host: o.Host}
}

// devices returns the node's CDI devices. For a simulated node it reads no files. Callers must not change the slice.
func (c *cdiSpecs) devices() []lifecycle.NodeDevice {
	if c.host != nil {
		return c.host.CDI
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.read()
	return c.nodeDevices
}

// ownableDevices returns the node's CDI devices if the configuration has classes of exclusive devices; otherwise nil.
func (a *Agent) ownableDevices() []lifecycle.NodeDevice {
	if o := a.settings.current().Hooks.CDIDevices; !o.Enabled || len(o.Classes) == 0 {
		return nil
	}
	return a.node.cdi.devices()
}

// variables returns the environment variables of each CDI device, by the device's qualified name, and the faults of the
// files.
func (c *cdiSpecs) variables() (env map[string][]string, faults []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.read()
	env = make(map[string][]string, len(c.specDevices))
	for i := range c.specDevices {
		env[c.specDevices[i].Name] = c.specDevices[i].Env
	}
	for _, f := range c.faults {
		faults = append(faults, f.String())
	}
	return env, faults
}

// warnOfMissingDirs logs a warning if the configuration needs CDI specifications, and no directory of paths.cdi exists.
// It logs a second warning if the configuration needs resource claims, and the directory of the kubelet's claims does
// not exist. A possible cause is that the agent runs in a pod that does not mount these directories.
func warnOfMissingDirs(o Options) {
	dra := o.Config.Authority == "dra"
	if o.Host != nil || !dra && len(o.Config.Hooks.CDIDevices.Classes) == 0 {
		return
	}
	exists := func(dir string) bool {
		_, err := os.Stat(dir)
		return err == nil
	}
	if dirs := o.Config.Paths.CDI; !slices.ContainsFunc(dirs, exists) {
		o.Log.Warn("no directory of CDI specifications exists (paths.cdi), so the agent knows no CDI devices", logkey.File, strings.Join(dirs, " "))
	}
	if file := o.Config.Paths.DRACheckpoint; dra && file != "" && !exists(filepath.Dir(file)) {
		o.Log.Warn("the directory of the kubelet's claims does not exist (paths.draCheckpoint), so the agent cannot check which pod a claim belongs to", logkey.File, file)
	}
}

// read parses the specifications if a file has changed. The caller holds mu.
func (c *cdiSpecs) read() {
	stamp := fingerprintOf(c.dirs)
	if stamp == c.fingerprint {
		return
	}
	known, faults := cdispec.Read(c.dirs)
	for _, f := range faults {
		if !slices.Contains(c.faults, f) {
			c.log.Warn("the agent cannot use a part of the node's CDI specifications", logkey.File, f.File, logkey.Err, f.Reason)
		}
	}
	c.fingerprint, c.specDevices, c.faults = stamp, known, faults
	c.nodeDevices = make([]lifecycle.NodeDevice, len(known))
	for i := range known {
		c.nodeDevices[i] = lifecycle.NodeDevice{Name: known[i].Name, Nodes: known[i].Nodes}
	}
}

// fingerprintOf returns a text with the names, sizes and times of the files in directories. It changes when a file
// changes.
func fingerprintOf(dirs []string) string {
	var b strings.Builder
	for _, dir := range dirs {
		entries, err := os.ReadDir(dir)
		fmt.Fprintln(&b, dir, err)
		for _, e := range entries {
			if at, err := os.Stat(filepath.Join(dir, e.Name())); err == nil {
				fmt.Fprintln(&b, e.Name(), at.Size(), at.ModTime().UnixNano())
			}
		}
	}
	return b.String()
}
