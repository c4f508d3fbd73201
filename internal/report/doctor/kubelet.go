package doctor

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/trimtab/trimtab/internal/config"
	"github.com/trimtab/trimtab/internal/report/api"
	"github.com/trimtab/trimtab/internal/report/term"
	"github.com/trimtab/trimtab/internal/topology"
)

// managerPolicy is the policy of one of the kubelet's resource managers, and the content of the manager's state file.
type managerPolicy struct {
	policy     string // the policy of the running kubelet if it is known, or else the configured policy
	policyFile string // the file that has policy
	found      bool   // a file of the kubelet was read, or a policy was found; if no file sets a policy, the kubelet uses its default
	err        error
	errFile    string // the file that could not be read because of err
	cpus       []int  // the CPUs that the CPU manager has assigned
	owners     int    // number of containers or pods with assigned CPUs or memory
}

// kubelet is the kubelet's directory on a node.
type kubelet struct {
	host
	root string // path of the directory
}

// findPolicy finds the policy of one of the kubelet's resource managers. It reads the manager's state file, which the
// running kubelet writes, then the kubelet's flags, and then the kubelet's configuration file. The parameter key is the
// policy's key in the configuration file, and flag the policy's flag. The parameter state is the name of the state
// file; "" if the manager has none.
func (k kubelet) findPolicy(key, flag, state string) managerPolicy {
	var m managerPolicy
	if state != "" {
		m.read(k, state, m.readState)
	}
	m.read(k, flagsFile, func(data []byte) (string, error) {
		if f := regexp.MustCompile(regexp.QuoteMeta(flag) + `[= ]"?([^"\s]+)`).FindSubmatch(data); f != nil {
			return string(f[1]), nil
		}
		return "", errNoPolicy
	})
	m.read(k, "config.yaml", func(data []byte) (string, error) {
		var all map[string]any
		err := yaml.Unmarshal(data, &all)
		policy, _ := all[key].(string)
		return policy, err
	})
	return m
}

// errNoPolicy is the error for a file that sets no policy.
var errNoPolicy = errors.New("the file sets no policy")

// read reads a file in the kubelet's directory. If no file before this one has set a policy, read stores the policy
// that this file sets. It also stores the first error.
func (m *managerPolicy) read(k kubelet, name string, policyOf func([]byte) (string, error)) {
	file := filepath.Join(k.root, name)
	data, err := k.read(file)
	if isMissing(err) {
		return
	}
	policy := ""
	if err == nil {
		policy, err = policyOf(data)
	}
	if err != nil && m.err == nil && !errors.Is(err, errNoPolicy) {
		m.err, m.errFile = err, file
	}
	m.found = m.found || err == nil || policy != ""
	if m.policy == "" && policy != "" {
		m.policy, m.policyFile = policy, file
	}
}

// readState reads a checkpoint of the CPU or memory manager.
func (m *managerPolicy) readState(data []byte) (policy string, err error) {
	var s struct {
		PolicyName string                     `json:"policyName"`
		Entries    map[string]json.RawMessage `json:"entries"`
	}
	if err := json.Unmarshal(data, &s); err != nil {
		return "", err
	}
	for _, pod := range s.Entries {
		var byContainer map[string]string // the CPUs of each container, in the CPU manager's checkpoint
		if json.Unmarshal(pod, &byContainer) != nil {
			m.owners++
			continue
		}
		for _, list := range byContainer {
			ids, err := topology.ParseList(list)
			if err != nil {
				return s.PolicyName, err
			}
			m.cpus = append(m.cpus, ids...)
			m.owners++
		}
	}
	slices.Sort(m.cpus)
	m.cpus = slices.Compact(m.cpus)
	return s.PolicyName, nil
}

// resultIfHarmless returns the result of a check if the kubelet's manager leaves the CPUs or the memory nodes to
// Trimtab: no policy was found, or the policy is in harmless. It also returns a result if a file cannot be read, or no
// file was found. Otherwise it returns false. The parameter harmless lists such policies, the kubelet's default policy
// first.
func (k kubelet) resultIfHarmless(c Check, m managerPolicy, harmless ...string) (Check, bool) {
	switch {
	case m.err != nil && (m.policy == "" || slices.Contains(harmless, strings.ToLower(m.policy))):
		return c.unreadable(m.errFile, m.err), true // the file that cannot be read may have another policy
	case !m.found:
		return c.unknown("name the kubelet's directory with --kubelet-root-dir", "no kubelet configuration below %s", k.root), true
	case m.policy == "":
		return c.ok("%s by default", harmless[0]), true
	case slices.Contains(harmless, strings.ToLower(m.policy)):
		return c.ok("%s (%s)", m.policy, m.policyFile), true
	}
	return c, false
}

// authorityAdvice has the ways in Trimtab's configuration to let only one program decide about CPUs.
const authorityAdvice = "or set authority: kubelet, so that the kubelet decides; or set hooks.cpuset.enabled: false, so that Trimtab assigns no CPUs"

// checkCPUManager checks that only one program assigns CPUs: the kubelet's CPU manager or Trimtab. granted asks for the
// state of the kubelet's PodResources API.
func checkCPUManager(ch Check, k kubelet, c config.Config, granted func() *api.SpecSource) Check {
	m := k.findPolicy("cpuManagerPolicy", "--cpu-manager-policy", "cpu_manager_state")
	kubeletDecides := c.Hooks.CPUSet.Enabled && c.Authority == "kubelet"
	if done, ok := k.resultIfHarmless(ch, m, "none"); ok {
		if kubeletDecides && done.Result == OK {
			return ch.problem("set cpuManagerPolicy: static in the kubelet, or authority: agent in Trimtab's configuration",
				"authority is kubelet, and the kubelet's policy is none: no containers can own CPUs")
		}
		return done
	}
	found := fmt.Sprintf("%s (%s)", m.policy, m.policyFile)
	if len(m.cpus) > 0 {
		found += fmt.Sprintf(": CPUs %s are assigned to %s", topology.FormatList(m.cpus), term.Count(m.owners, "container"))
	}
	if !c.Hooks.CPUSet.Enabled {
		return ch.ok("%s; Trimtab does not assign CPUs (hooks.cpuset.enabled is false)", found)
	}
	if kubeletDecides {
		if source := granted(); source != nil {
			found += "; which containers own CPUs is " + source.CPUSource()
		}
		return ch.ok("%s; Trimtab keeps other containers off the CPUs that the kubelet assigns (authority is kubelet)", found)
	}
	return ch.problem("drain the node, set cpuManagerPolicy: none, remove "+filepath.Join(k.root, "cpu_manager_state")+
		" and restart the kubelet; "+authorityAdvice, "two programs assign CPUs: the kubelet's policy is %s, and Trimtab's cpuset hook is enabled", found)
}

// checkMemoryManager checks that only one program assigns memory nodes: the kubelet's memory manager or Trimtab.
func checkMemoryManager(ch Check, k kubelet, c config.Config) Check {
	m := k.findPolicy("memoryManagerPolicy", "--memory-manager-policy", "memory_manager_state")
	if done, ok := k.resultIfHarmless(ch, m, "none"); ok {
		return done
	}
	if !c.Hooks.CPUSet.Enabled {
		return ch.ok("%s (%s); Trimtab does not assign CPUs (hooks.cpuset.enabled is false)", m.policy, m.policyFile)
	}
	if c.Authority == "kubelet" {
		return ch.ok("%s (%s); Trimtab does not change the kubelet's decisions (authority is kubelet)", m.policy, m.policyFile)
	}
	return ch.problem("drain the node, set memoryManagerPolicy: None, remove "+filepath.Join(k.root, "memory_manager_state")+
		" and restart the kubelet; "+authorityAdvice, "two programs assign memory nodes: the kubelet's policy is %s (%s), and Trimtab's cpuset hook is enabled", m.policy, m.policyFile)
}

// checkTopologyManager reports the policy of the kubelet's topology manager.
func checkTopologyManager(c Check, k kubelet) Check {
	m := k.findPolicy("topologyManagerPolicy", "--topology-manager-policy", "")
	if done, ok := k.resultIfHarmless(c, m, "none", "best-effort"); ok {
		return done
	}
	return c.ok("%s (%s): the topology manager aligns devices, and may refuse pods whose devices are on several NUMA nodes", m.policy, m.policyFile)
}
