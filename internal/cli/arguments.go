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

// Arguments returns a function that checks the number of a command's arguments. The function accepts minimum to
// len(names) arguments, or any larger number if the last name ends in "...". Its error names the missing arguments, or
// the first unexpected one.
func Arguments(minimum int, names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		many := len(names) > 0 && strings.HasSuffix(names[len(names)-1], "...")
		switch {
		case len(args) < minimum:
			return fmt.Errorf("%q needs the argument %s", cmd.CommandPath(), strings.Join(names[len(args):minimum], " and "))
		case many:
			return nil
		case len(args) > len(names) && len(names) == 0:
			return fmt.Errorf("%q takes no arguments, but got %q", cmd.CommandPath(), args[0])
		case len(args) > len(names):
			return fmt.Errorf("%q takes only %s, but also got %q", cmd.CommandPath(), strings.Join(names, " and "), args[len(names)])
		}
		return nil
	}
}

// Interval adds the flag --interval to a command. The command also accepts --every, the name of the flag in earlier
// versions.
func Interval(cmd *cobra.Command, usage string) *time.Duration {
	cmd.Flags().SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		if name == "every" {
			name = "interval"
		}
		return pflag.NormalizedName(name)
	})
	return cmd.Flags().Duration("interval", time.Second, usage)
}

// FlagError converts an error of pflag about a flag to a message for users. The root command passes FlagError to
// SetFlagErrorFunc.
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
		return fmt.Errorf("--%s %q: %s", value.GetFlag().Name, value.GetValue(), refusedValueReason(value))
	case errors.As(err, &empty):
		return fmt.Errorf("--%s needs a value: %s", empty.GetFlag().Name, empty.GetFlag().Usage)
	}
	return err
}

// unknownFlag returns the error for an unknown flag. The error names a similar flag, if there is one.
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
	if near, distance := nearest.Word(name, names); near != "" && distance <= max(2, len(name)/3) {
		return fmt.Errorf("unknown flag --%s of %q; did you mean --%s?", name, cmd.CommandPath(), near)
	}
	return fmt.Errorf("unknown flag --%s of %q", name, cmd.CommandPath())
}

// refusedValueReason returns why the value of a flag is refused. Go's own error text would have names of Go functions.
func refusedValueReason(err *pflag.InvalidValueError) string {
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

// HelpHint returns the line to print after a usage error of a command.
func HelpHint(cmd *cobra.Command) string {
	return fmt.Sprintf("Run '%s --help' to see how to use the command.", cmd.CommandPath())
}
