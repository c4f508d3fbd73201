package cli

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/trimtab/trimtab/internal/jsonwords"
	"github.com/trimtab/trimtab/internal/nearest"
)

// Arguments checks the arguments of a command: from least to len(names) of them, or any number above if the last name
// ends in "...". Its errors name the one that is missing, and the first that does not belong.
func Arguments(least int, names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		many := len(names) > 0 && strings.HasSuffix(names[len(names)-1], "...")
		switch {
		case len(args) < least:
			return fmt.Errorf("%q needs %s", cmd.CommandPath(), strings.Join(names[len(args):least], " and "))
		case many:
			return nil
		case len(args) > len(names) && len(names) == 0:
			return fmt.Errorf("%q takes no arguments: %q does not belong", cmd.CommandPath(), args[0])
		case len(args) > len(names):
			return fmt.Errorf("%q takes only %s: %q does not belong", cmd.CommandPath(), strings.Join(names, " and "), args[len(names)])
		}
		return nil
	}
}

// Interval gives a command a flag --interval. --every, its name in earlier versions, is accepted, too.
func Interval(cmd *cobra.Command, usage string) *time.Duration {
	cmd.Flags().SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		if name == "every" {
			name = "interval"
		}
		return pflag.NormalizedName(name)
	})
	return cmd.Flags().Duration("interval", time.Second, usage)
}

// FlagError says what is wrong with a flag in the words of a user. It belongs in SetFlagErrorFunc of the root.
func FlagError(cmd *cobra.Command, err error) error {
	var (
		absent *pflag.NotExistError
		value  *pflag.InvalidValueError
		empty  *pflag.ValueRequiredError
	)
	switch {
	case errors.As(err, &absent):
		return unknownFlag(cmd, absent)
	case errors.As(err, &value):
		return fmt.Errorf("--%s %q: %s", value.GetFlag().Name, value.GetValue(), reason(value))
	case errors.As(err, &empty):
		return fmt.Errorf("--%s needs a value: %s", empty.GetFlag().Name, empty.GetFlag().Usage)
	}
	return err
}

// unknownFlag names the flag that was perhaps meant.
func unknownFlag(cmd *cobra.Command, err *pflag.NotExistError) error {
	name := err.GetSpecifiedName()
	if len(name) == 1 {
		return fmt.Errorf("unknown flag -%s of %q", name, cmd.CommandPath())
	}
	var names []string
	for _, set := range []*pflag.FlagSet{cmd.LocalFlags(), cmd.InheritedFlags()} {
		set.VisitAll(func(f *pflag.Flag) {
			if !f.Hidden {
				names = append(names, f.Name)
			}
		})
	}
	if near, distance := nearest.To(name, names); near != "" && distance <= max(2, len(name)/3) {
		return fmt.Errorf("unknown flag --%s of %q; did you mean --%s?", name, cmd.CommandPath(), near)
	}
	return fmt.Errorf("unknown flag --%s of %q", name, cmd.CommandPath())
}

// reason is why a value is refused, without the names of Go's functions.
func reason(err *pflag.InvalidValueError) string {
	switch err.GetFlag().Value.Type() {
	case "duration":
		return "want a duration such as 90s, 5m or 2h"
	case "int", "uint64", "uint", "int64":
		return "want a whole number"
	case "bool":
		return "want true or false"
	}
	return jsonwords.Text(err.Unwrap().Error())
}

// HelpHint is the line after an error in how a command was used.
func HelpHint(cmd *cobra.Command) string {
	return fmt.Sprintf("Run '%s --help' for how to use it.", cmd.CommandPath())
}
