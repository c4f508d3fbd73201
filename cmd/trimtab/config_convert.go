package main

import (
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/trimtab/trimtab/internal/cli"
	"github.com/trimtab/trimtab/internal/config"
	"github.com/trimtab/trimtab/internal/kube/koordinator"
)

func newConfigConvert() *cobra.Command {
	return &cobra.Command{
		Use:   "convert FILE",
		Short: "Convert a policy of nri-plugins, a NodeSLO or a kubelet configuration to a configuration of Trimtab",
		Long: `Converts a custom resource BalloonsPolicy or TopologyAwarePolicy of
containers/nri-plugins, a NodeSLO of Koordinator, or a KubeletConfiguration with static
managers, to a configuration of Trimtab, and prints it.
On standard error it lists keys that have no equivalent, with file and line. For a NodeSLO
it lists such keys without line, and names keys of Trimtab that have a similar effect.

An agent can also read a policy of nri-plugins without conversion: name the file in
placement.policyFile. With cluster.config.alsoRead, an agent reads its node's NodeSLO.`,
		Example: "  kubectl get -n kube-system balloonspolicies default -o yaml > policy.yaml\n  trimtab config convert policy.yaml > config.yaml\n  trimtab config convert /var/lib/kubelet/config.yaml",
		Args:    cli.Arguments(1, "FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			text, err := config.Read(args[0])
			if err != nil {
				return &usageError{err}
			}
			if object := nodeSLO(text); object != nil {
				return convertNodeSLO(cmd, args[0], object)
			}
			c, err := config.Convert(args[0], text)
			if err != nil {
				return &usageError{err}
			}
			for _, p := range c.Unconverted {
				fmt.Fprintln(cmd.ErrOrStderr(), p)
			}
			return cli.Write(cmd.OutOrStdout(), append([]byte(modeline), c.Text...))
		},
	}
}

// nodeSLO returns the object in a file if it is Koordinator's resource NodeSLO, and nil otherwise.
func nodeSLO(text []byte) *unstructured.Unstructured {
	var o unstructured.Unstructured
	if err := yaml.Unmarshal(text, &o.Object); err != nil || o.GetKind() != "NodeSLO" {
		return nil
	}
	return &o
}

// convertNodeSLO converts o, Koordinator's resource NodeSLO from a file, to a Trimtab configuration and prints the
// configuration. On standard error it lists the keys of o that it does not convert.
func convertNodeSLO(cmd *cobra.Command, file string, o *unstructured.Unstructured) error {
	if v := o.GetAPIVersion(); v != koordinator.Version {
		return &usageError{fmt.Errorf("%s: apiVersion is %q, want %q", file, v, koordinator.Version)}
	}
	layer, some, unserved := koordinator.NodeSLOLayer(o)
	for _, what := range unserved {
		fmt.Fprintf(cmd.ErrOrStderr(), "%s: not converted: %s\n", file, what)
	}
	out := []byte(modeline + "apiVersion: " + config.APIVersion + "\nkind: " + config.Kind + "\n")
	if some {
		if _, err := config.Parse(file, layer.Data); err != nil {
			return &usageError{err}
		}
		out = append([]byte(modeline), layer.Data...)
	}
	return cli.Write(cmd.OutOrStdout(), out)
}
