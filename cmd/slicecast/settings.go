package main

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"sigs.k8s.io/yaml"
)

// envName gives the environment variable of a flag: SLICECAST_<FLAG>.
func envName(flag string) string {
	return "SLICECAST_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// applySettings fills the flags that were not given from the environment, and what is left from the config file:
// flags beat environment beats file.
func applySettings(cmd *cobra.Command, lookup func(string) (string, bool)) error {
	flags := cmd.Flags()
	if err := applyEnv(flags, lookup); err != nil {
		return err
	}
	file := flags.Lookup("config")
	if file == nil || file.Value.String() == "" {
		return nil
	}
	return applyFile(cmd, file.Value.String())
}

func applyEnv(flags *pflag.FlagSet, lookup func(string) (string, bool)) error {
	var failed error
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Changed || failed != nil || f.Name == "help" {
			return
		}
		text, ok := lookup(envName(f.Name))
		if !ok {
			return
		}
		if err := setFlag(flags, f, strings.Fields(text), text); err != nil {
			failed = usagef("environment variable %s: %w", envName(f.Name), err)
		}
	})
	return failed
}

// applyFile sets flags from a YAML mapping of flag names. A name that no slicecast command has is an error; one that
// only other commands have is left to them, so that all roles can share a file.
func applyFile(cmd *cobra.Command, path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return usagef("config file: %w", err)
	}
	var values map[string]any
	if err := yaml.UnmarshalStrict(text, &values); err != nil {
		return usagef("config file %s: %w", path, err)
	}
	known := allFlags(cmd.Root())
	names := make([]string, 0, len(values))
	for name := range values {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		if !known[name] || name == "config" {
			return usagef("config file %s: no slicecast command has a flag %q", path, name)
		}
		f := cmd.Flags().Lookup(name)
		if f == nil || f.Changed {
			continue
		}
		list, err := textsOf(values[name])
		if err != nil {
			return usagef("config file %s: %s: %w", path, name, err)
		}
		if err := setFlag(cmd.Flags(), f, list, strings.Join(list, ",")); err != nil {
			return usagef("config file %s: %s: %w", path, name, err)
		}
	}
	return nil
}

// setFlag sets a repeatable flag to list, any other to text. Where the flag itself parts its words at commas, so does
// this.
func setFlag(flags *pflag.FlagSet, f *pflag.Flag, list []string, text string) error {
	many, ok := f.Value.(pflag.SliceValue)
	if !ok {
		return flags.Set(f.Name, text)
	}
	if f.Value.Type() == "stringSlice" {
		list = strings.FieldsFunc(strings.Join(list, ","), func(c rune) bool { return c == ',' })
	}
	if err := many.Replace(list); err != nil {
		return err
	}
	f.Changed = true
	return nil
}

// textsOf gives the texts of a scalar or a list of scalars of a config file.
func textsOf(value any) ([]string, error) {
	list, ok := value.([]any)
	if !ok {
		list = []any{value}
	}
	texts := make([]string, 0, len(list))
	for _, v := range list {
		switch v := v.(type) {
		case string:
			texts = append(texts, v)
		case float64: // every number of a YAML file
			texts = append(texts, strconv.FormatFloat(v, 'f', -1, 64))
		case bool:
			texts = append(texts, strconv.FormatBool(v))
		default:
			return nil, fmt.Errorf("%v is neither a text, a number, true, false nor a list of them", value)
		}
	}
	return texts, nil
}

func allFlags(cmd *cobra.Command) map[string]bool {
	known := map[string]bool{}
	add := func(f *pflag.Flag) { known[f.Name] = true }
	cmd.LocalFlags().VisitAll(add)
	for _, sub := range cmd.Commands() {
		for name := range allFlags(sub) {
			known[name] = true
		}
	}
	return known
}
