//! The completion scripts, in the shells that use them.
use crate::support::program::done;
use std::{fs, path::Path, process::Command};

/// Calls the completion function with the words of the script's arguments, the last of which is to be
/// completed.
const BASH: &str = r#"
source ./completions.bash
function=$(complete -p tgnn-bench | sed 's/.* -F \([^ ]*\) .*/\1/')
compopt() { :; }
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMPREPLY=()
"$function" tgnn-bench "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
printf '%s\n' "${COMPREPLY[@]}"
"#;

/// Types the words in an interactive shell, presses the tab key, and prints the line of the editor.
const ZSH: &str = r#"
zmodload zsh/zpty
zpty shell zsh -f -i
zpty -w shell 'autoload -U compinit; compinit -u -D; source ./completions.zsh'
zpty -w shell 'show() { zle complete-word; print -r -- "<$BUFFER>"; }; zle -N show; bindkey "^I" show; print REA""DY'
zpty -r shell _ '*READY*'
zpty -w -n shell "$*"$'\t'
zpty -r shell line '*<*>*'
print -r -- ${${line##*<}%%>*}
"#;

/// Prints what fish offers.
const FISH: &str =
    "source ./completions.fish; complete -C (string join -- ' ' $argv) | string split -f 1 \\t";

/// Returns what a shell makes of a line, of which the last word is to be completed; `None`, with a note, if
/// the shell is not installed.
fn completed(shell: &str, dir: &Path, line: &str) -> Option<Vec<String>> {
    let (script, flags) = match shell {
        "bash" => (BASH, &["--norc"][..]),
        "zsh" => (ZSH, &["-f"][..]),
        _ => (FISH, &["--no-config"][..]),
    };
    fs::write(dir.join("script"), script).unwrap();
    let ran = Command::new(shell).args(flags).arg("script").args(line.split(' ')).current_dir(dir).output();
    let Ok(ran) = ran else {
        println!("skipped: no {shell}");
        return None;
    };
    let (out, err) = (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    assert!(err.is_empty(), "{shell}, {line}: {err}");
    Some(out.lines().map(|line| line.trim().to_owned()).collect())
}

/// Writes the script of a shell into a new folder.
fn prepared(shell: &str) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let script = done(dir.path(), &["completions", shell]).out;
    fs::write(dir.path().join(format!("completions.{shell}")), script).unwrap();
    dir
}

#[test]
fn bash_and_fish_complete_flags_subcommands_and_values_after_a_subcommand() {
    for shell in ["bash", "fish"] {
        let dir = prepared(shell);
        for (line, want) in [
            ("tgnn-bench tra", &["train"][..]),
            ("tgnn-bench train --mod", &["--model"]),
            ("tgnn-bench eval --ch", &["--checkpoint"]),
            ("tgnn-bench data synth-snapshots --ste", &["--steps"]),
            ("tgnn-bench plan sim", &["simulate"]),
            ("tgnn-bench data imp", &["import"]),
            ("tgnn-bench train --model tga", &["tgat"]),
            ("tgnn-bench train --device cp", &["cpu"]),
            ("tgnn-bench eval --protocol dis", &["disttgl"]),
            ("tgnn-bench train --task pr", &["property"]),
            ("tgnn-bench sweep --plan overl", &["overlap"]),
            ("tgnn-bench data info --format j", &["jodie"]),
            ("tgnn-bench data info --missing re", &["refuse"]),
        ] {
            let Some(found) = completed(shell, dir.path(), line) else { break };
            assert_eq!(found, want, "{shell}: {line}");
        }
        let Some(models) = completed(shell, dir.path(), "tgnn-bench train --model ") else { continue };
        assert!(models.len() > 8 && models.contains(&"graph-mixer".to_owned()), "{models:?}");
        let data = completed(shell, dir.path(), "tgnn-bench data ").unwrap();
        assert!(
            ["info", "import", "synth"].iter().all(|name| data.contains(&(*name).to_owned())),
            "{data:?}"
        );
    }
}

#[test]
fn zsh_completes_flags_subcommands_and_values_after_a_subcommand() {
    let dir = prepared("zsh");
    for (line, want) in [
        ("tgnn-bench train --mod", "tgnn-bench train --model="),
        ("tgnn-bench eval --ch", "tgnn-bench eval --checkpoint="),
        ("tgnn-bench data imp", "tgnn-bench data import"),
        ("tgnn-bench train --model tga", "tgnn-bench train --model tgat"),
        ("tgnn-bench sweep --plan overl", "tgnn-bench sweep --plan overlap"),
    ] {
        let Some(found) = completed("zsh", dir.path(), line) else { return };
        assert_eq!(found, [want], "{line}");
    }
}
