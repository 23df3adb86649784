use sluice_bench::progress::Progress;
use sluice_bench::result::Profile;
use sluice_bench::suites::{Context, find};
fn main() {
    sluice_bench::gateway::remove_leftovers();
    let args: Vec<String> = std::env::args().collect();
    let full = args.iter().any(|a| a == "full");
    let rounds =
        args.iter().find_map(|a| a.strip_prefix("n=")?.parse().ok()).unwrap_or(if full { 9 } else { 3 });
    let context = Context {
        profile: if full { Profile::Full } else { Profile::Quick },
        rounds,
        wanted: vec![],
        interfaces: None,
        peer: None,
        progress: Progress::stderr(),
    };
    let began = std::time::Instant::now();
    let result = (find(&args[1]).unwrap().run)(&context);
    match result {
        Ok(result) => {
            for f in &result.figures {
                println!(
                    "{:60} {:>12.3} [{:.3}, {:.3}] {} {} {}",
                    f.name,
                    f.estimate.value,
                    f.estimate.low,
                    f.estimate.high,
                    f.unit,
                    f.ratio.map(|r| format!("x{:.2}", r.value)).unwrap_or_default(),
                    f.same.map(|r| format!("A/A {:.3}", r.value)).unwrap_or_default()
                );
                for c in &f.checks {
                    if !c.passed {
                        println!("   FAILED {}: {}", c.name, c.detail);
                    }
                }
            }
            for t in &result.tables {
                println!("\n{}\n{}", t.title, t.header.join(" | "));
                for r in &t.rows {
                    println!("{}", r.join(" | "));
                }
                println!("({})", t.note);
            }
            for c in &result.honesty {
                println!("check {} {}: {}", if c.passed { "ok" } else { "FAILED" }, c.name, c.detail);
            }
            for n in &result.notes {
                println!("note: {n}");
            }
            for e in &result.errors {
                println!("ERROR: {e}");
            }
            if let Some(p) = args.iter().find_map(|a| a.strip_prefix("json=")) {
                std::fs::write(p, serde_json::to_string(&result).unwrap()).unwrap();
            }
        }
        Err(e) => println!("error: {e:#}"),
    }
    println!("{:.1} s", began.elapsed().as_secs_f64());
}
